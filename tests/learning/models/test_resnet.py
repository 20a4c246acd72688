"""ResNet-18."""

from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa.learning.models.registry import make
from fedfa.learning.models.settings import ModelSettings


@pytest.mark.parametrize(("norm", "second"), [("batch", "inline"), ("group", "batched")])
def test_resnet18_has_the_usual_size_and_trains_both_ways(norm: Any, second: str) -> None:
    full = make(ModelSettings(name="resnet18", norm=norm), (3, 32, 32), 10)
    assert sum(p.numel() for p in full.parameters()) == 11_173_962
    small = ModelSettings(name="resnet18", norm=norm, width=8)
    images = torch.Generator().manual_seed(0)
    clients = [(torch.rand(6, 3, 16, 16, generator=images), torch.arange(6) % 2) for _ in range(3)]
    task = fedfa.Task(
        model=lambda: make(small, (3, 16, 16), 2),
        clients=clients,
        test=clients[0],
        local=fedfa.LocalTraining(epochs=1, batch_size=3, lr=0.002),
    )
    runs = [
        fedfa.simulate(
            fedfa.FedFaDelta(concurrency=2, window=2), task, stop=fedfa.Stop(updates=4), engine={"executor": name}
        )
        for name in ("inline", "batched")
    ]
    assert [run.manifest["executor"] for run in runs] == ["inline", second]
    moved = np.linalg.norm(runs[0].model - task.initial(0).vector)
    assert np.linalg.norm(runs[0].model - runs[1].model) < 1e-3 * moved
