"""FEMNIST, from tiny copies of its real forms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa.experiments.config import from_table
from fedfa.learning.data.registry import load

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({}, "names no writer"),
        ({"a": {"x": [], "y": []}}, "holds no training examples"),
        ({"a": {"x": [[0.5] * 784], "y": [-3]}}, "label -3 is below 0"),
    ],
)
def test_damaged_femnist_is_reported_in_one_line(users: dict[str, Any], message: str, tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        table = {"users": list(users), "user_data": users, "num_samples": [len(u["y"]) for u in users.values()]}
        (tmp_path / "femnist" / part / "all.json").write_text(json.dumps(table))
    with pytest.raises(fedfa.ConfigError, match=message):
        load("femnist", str(tmp_path), np.random.default_rng(0))


def write_leaf(root: Path) -> None:
    for part, count in (("train", 5), ("test", 2)):
        folder = root / "femnist" / part
        folder.mkdir(parents=True)
        users = ["f01", "f02", "f03"]
        rows = {
            user: {"x": RNG.random((count + n, 784)).round(3).tolist(), "y": [n] * (count + n)}
            for n, user in enumerate(users)
        }
        table = {"users": users, "num_samples": [count + n for n in range(3)], "user_data": rows}
        (folder / "all_data_0.json").write_text(json.dumps(table))


def test_femnist_in_leafs_form_splits_by_writer(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    data = load("femnist", str(tmp_path), np.random.default_rng(0))
    assert data.train_inputs.shape == (18, 1, 28, 28)
    assert data.owners is not None
    assert data.owners.count("f03") == 7
    settings = {"dataset": "femnist", "folder": str(tmp_path), "partition": "natural", "clients": 3}
    experiment = from_table({"data": settings, "strategy": {"concurrency": 2}, "model": {"name": "cnn"}})
    assert experiment.make_task().sizes == [5, 6, 7]
    (tmp_path / "femnist" / "test" / "all_data_0.json").write_text('{"users": ["f01"]')
    with pytest.raises(fedfa.ConfigError, match=r"all_data_0\.json: is not LEAF's JSON, or cut short"):
        load("femnist", str(tmp_path), np.random.default_rng(0))


def test_femnist_in_the_compact_form_holds_every_fifth_out(tmp_path: Path) -> None:
    folder = tmp_path / "femnist"
    folder.mkdir()
    client = np.repeat([0, 1], [10, 15]).astype(np.uint8)
    arrays = {
        "x": RNG.integers(0, 256, (25, 28, 28), dtype=np.uint8),
        "y": (np.arange(25) % 10).astype(np.uint8),
        "client": client,
    }
    np.savez(folder / "some.npz", **arrays, split=np.zeros(25, np.uint8))
    data = load("femnist", str(tmp_path), np.random.default_rng(0))
    assert (len(data.train_targets), len(data.test_targets)) == (20, 5)
    assert data.owners is not None
    assert [data.owners.count(owner) for owner in ("0", "1")] == [8, 12]
    np.savez(folder / "some.npz", **arrays, split=(np.arange(25) >= 20).astype(np.uint8))
    assert len(load("femnist", str(tmp_path), np.random.default_rng(0)).test_targets) == 5
    (folder / "some.npz").write_bytes(b"PK cut")
    with pytest.raises(fedfa.ConfigError, match=r"some\.npz: cannot be read"):
        load("femnist", str(tmp_path), np.random.default_rng(0))
