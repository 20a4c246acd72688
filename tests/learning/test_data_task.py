"""Tasks from a data set and a model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa.experiments.config import from_table
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task, named_task
from fedfa.learning.models.settings import ModelSettings
from tests.helpers.texts import error_of


def test_data_and_model_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(**tables: Any) -> str:
        return error_of(from_table, tables)

    bert = {"name": "bert", "weights": "bert-tiny"}
    assert message(data={"dataset": "sst2"}) == "model.name = 'mlp': reads images, sst2 holds texts; use bert"
    assert "model.name = 'bert': reads texts, digits holds images" in message(model=bert)
    assert "model.weights = '': bert needs a folder with pretrained weights" in message(model={"name": "bert"})
    assert "model.max_length = 1: must be between" in message(model=bert | {"max_length": 1})
    assert "model.lora_rank = -1: must be between" in message(model=bert | {"lora_rank": -1})
    assert "data.clients = 0: must be at least 1; 0 means every owner" in message(data={"clients": 0})
    assert "data.size_sigma = -1.0: must be between 0 and 10" in message(data={"size_sigma": -1})
    assert "data.min_examples = 0: must be at least 1" in message(data={"min_examples": 0})
    assert "data.max_examples = 4: must be at least min_examples = 5, or 0 for no limit" in message(
        data={"min_examples": 5, "max_examples": 4}
    )
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    assert "say where it is: data.folder" in error_of(
        data_task, DataSettings(dataset="sst2"), ModelSettings(**bert), fedfa.LocalTraining(), 0
    )


def test_the_embedded_clients_have_the_sizes_that_the_docs_name() -> None:
    sizes = np.concatenate([named_task("digits", seed).sizes for seed in range(10)])
    assert (sizes.min(), sizes.max(), np.median(sizes)) == (9, 72, 26)
    assert np.mean(sizes <= 64).round(2) == 0.99
    equal = data_task(DataSettings(size_sigma=0.0), ModelSettings(), fedfa.LocalTraining(), seed=0)
    assert equal.sizes == [28] * 50
