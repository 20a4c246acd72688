"""What data sets share: held-out examples, and the folder they are in."""

from pathlib import Path

import numpy as np
import pytest

import fedfa
from fedfa.learning.data.base import held_out
from fedfa.learning.data.registry import load


def test_every_nth_example_of_each_owner_is_held_out() -> None:
    assert np.flatnonzero(held_out("abababaaab", every=3)).tolist() == [4, 5, 8]
    assert not held_out(["a", "b"], every=2).any()


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    with pytest.raises(fedfa.ConfigError, match=r"say where it is: data\.folder, --data DIR or FEDFA_DATA"):
        load("cifar10", "", np.random.default_rng(0))
    with pytest.raises(fedfa.ConfigError, match="no such folder"):
        load("cifar10", str(tmp_path / "none"), np.random.default_rng(0))
    monkeypatch.setenv("FEDFA_DATA", str(tmp_path))
    with pytest.raises(fedfa.ConfigError, match="holds no femnist"):
        load("femnist", "", np.random.default_rng(0))
