"""The embedded digits."""

from pathlib import Path

import numpy as np

from fedfa.learning.data import digits


def test_the_embedded_digits_are_all_there() -> None:
    split = digits.load(Path(), np.random.default_rng(0))
    assert len(split.train_targets) + len(split.test_targets) == 1797
    assert len(split.test_targets) == 359
    assert split.train_inputs.shape[1:] == (8, 8)
    assert split.train_inputs.min() == 0
    assert split.train_inputs.max() == 1
    assert set(split.train_targets.tolist()) == set(range(10))
