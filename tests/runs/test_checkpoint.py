"""Checkpoint files."""

from pathlib import Path

import numpy as np
import pytest

from fedfa.errors import RecordError
from fedfa.runs import checkpoint


def test_a_checkpoint_keeps_a_shared_vector_once(tmp_path: Path) -> None:
    path, shared = tmp_path / "checkpoint.npz", np.arange(3.0)
    checkpoint.write_tree(path, {"bases": {1: shared, 2: shared}, "window": [shared, shared + 1]})
    with np.load(path) as file:
        assert len(file.files) == 3  # the tree and two vectors
    state = checkpoint.read_tree(path)
    np.testing.assert_array_equal(state["bases"][2], shared)
    np.testing.assert_array_equal(state["window"][1], shared + 1)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.npz"
    checkpoint.write_tree(path, {"now": 1.0})
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    with pytest.raises(RecordError, match="was written by another version of fedfa"):
        checkpoint.read_tree(path)
