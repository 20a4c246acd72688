"""The real data, where FEDFA_DATA says it is."""

import os

import numpy as np
import pytest

from fedfa.learning.data.registry import load
from fedfa.learning.data.text import TextSet

REAL = os.environ.get("FEDFA_DATA", "")


@pytest.mark.skipif(not REAL, reason="FEDFA_DATA does not say where real data is")
@pytest.mark.parametrize(
    ("name", "classes", "majority"),
    [("sst2", 2, 0.6), ("sent140", 2, 0.6), ("twitter_entity", 4, 0.35), ("rent_the_runway", 5, 0.7)],
)
def test_the_real_texts(name: str, classes: int, majority: float) -> None:
    data: TextSet = load(name, REAL, np.random.default_rng(0))
    assert data.classes == classes
    assert len(data.train_texts) == len(data.train_labels) > 5000
    assert set(data.train_labels.tolist()) == set(data.test_labels.tolist()) == set(range(classes))
    assert np.bincount(data.train_labels).max() / len(data.train_labels) < majority
    assert all(data.train_texts)
    if data.owners is not None:
        assert len(data.owners) == len(data.train_texts)
        assert set(data.test_texts) != set(data.train_texts)


@pytest.mark.skipif(not REAL, reason="FEDFA_DATA does not say where real data is")
@pytest.mark.parametrize(("name", "train", "test"), [("cifar10", 50_000, 10_000), ("femnist", 1, 1)])
def test_the_real_data(name: str, train: int, test: int) -> None:
    data = load(name, REAL, np.random.default_rng(0))
    assert len(data.train_targets) >= train
    assert len(data.test_targets) >= test
    assert data.train_inputs.mean().abs() < 1.0
