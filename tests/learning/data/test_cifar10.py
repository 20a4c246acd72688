"""Loaders on tiny copies of the real formats, made here; on the real data where FEDFA_DATA says it is."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedfa
from fedfa.experiments.config import from_table
from fedfa.learning.data import cifar10
from fedfa.learning.data.registry import load
from fedfa.learning.models.registry import make
from fedfa.learning.models.settings import ModelSettings

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (9, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(9, dtype=np.uint8)
NAMES = [*cifar10.BATCHES, "test_batch"]


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """CIFAR-10 files of nine records, whose hashes nobody knows."""
    monkeypatch.setattr(cifar10, "RECORDS", 9)
    monkeypatch.setattr(cifar10, "MD5", {})


def write_binary(root: Path) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in NAMES:
        records = np.concatenate([LABELS[:, None], IMAGES.reshape(9, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def write_python(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in NAMES:
        table = {b"data": IMAGES.reshape(9, -1), b"labels": LABELS.tolist(), b"batch_label": b"made here"}
        (folder / name).write_bytes(pickle.dumps(table, protocol=2))
    return folder


def write_jpeg(root: Path) -> Path:
    folder = root / "cifar10-jpeg"
    folder.mkdir(parents=True)
    smooth = np.repeat(RNG.integers(0, 256, (9, 3, 1, 1), dtype=np.uint8), 32, 2).repeat(32, 3)
    for name in NAMES:
        sheet = smooth.transpose(0, 2, 3, 1).reshape(3, 3, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(96, 96, 3)
        Image.fromarray(sheet).save(folder / f"{name}.jpg", quality=95, subsampling=0)
        (folder / f"{name}.labels.u8").write_bytes(LABELS.tobytes())
    np.save(root / "smooth.npy", smooth)
    return folder


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("write", [write_binary, write_python], ids=["binary", "python"])
def test_cifar10_in_its_public_forms(write: Any, tmp_path: Path) -> None:
    folder = write(tmp_path)
    for where in (tmp_path, folder):
        data = load("cifar10", str(where), generator())
        assert data.train_inputs.shape == (45, 3, 32, 32)
        assert data.test_targets.tolist() == list(range(9))
        assert data.classes == 10
        mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in (cifar10.MEAN, cifar10.STD))
        np.testing.assert_allclose(data.test_inputs.numpy(), (IMAGES / 255 - mean) / std, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("tiny")
def test_cifar10_as_jpeg_sheets(tmp_path: Path) -> None:
    write_jpeg(tmp_path)
    data = load("cifar10", str(tmp_path), generator())
    mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in (cifar10.MEAN, cifar10.STD))
    pixels = (data.test_inputs.numpy() * std + mean) * 255
    assert np.abs(pixels - np.load(tmp_path / "smooth.npy")).mean() < 3


@pytest.mark.usefixtures("tiny")
def test_damaged_cifar10_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message() -> str:
        with pytest.raises(fedfa.ConfigError) as caught:
            load("cifar10", str(tmp_path), generator())
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "holds no cifar-10-batches-bin or" in message()
    assert "cs.toronto.edu/~kriz/cifar.html" in message()
    folder = write_binary(tmp_path)
    monkeypatch.setattr(cifar10, "MD5", {"data_batch_1.bin": "0" * 32})
    assert "has the wrong hash" in message()
    monkeypatch.setattr(cifar10, "MD5", {})
    file = folder / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert "data_batch_3.bin: has 27,656 bytes, not 27,657: cut short?" in message()
    file.unlink()
    assert "data_batch_3.bin: is missing" in message()


@pytest.mark.usefixtures("tiny")
def test_damaged_python_batches_are_told_by_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_python(tmp_path)
    monkeypatch.setattr(cifar10, "MD5", {"data_batch_2": "0" * 32})
    with pytest.raises(fedfa.ConfigError, match="data_batch_2: has the wrong hash"):
        load("cifar10", str(tmp_path), generator())


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({}, "names no writer"),
        ({"a": {"x": [], "y": []}}, "holds no training examples"),
        ({"a": {"x": [[0.5] * 784], "y": [-3]}}, "label -3 is below 0"),
    ],
)
def test_damaged_femnist_is_one_line(users: dict[str, Any], message: str, tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        table = {"users": list(users), "user_data": users, "num_samples": [len(u["y"]) for u in users.values()]}
        (tmp_path / "femnist" / part / "all.json").write_text(json.dumps(table))
    with pytest.raises(fedfa.ConfigError, match=message):
        load("femnist", str(tmp_path), generator())


@pytest.mark.usefixtures("tiny")
def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    folder = write_python(tmp_path)

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("touch pwned",)

    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(fedfa.ConfigError, match=r"data_batch_2: cannot be read \(posix\.system has no place"):
        load("cifar10", str(tmp_path), generator())
    assert not Path("pwned").exists()
    (folder / "data_batch_2").write_bytes(b"\x80\x02cut")
    with pytest.raises(fedfa.ConfigError, match="data_batch_2: cannot be read"):
        load("cifar10", str(tmp_path), generator())


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
    data = load("femnist", str(tmp_path), generator())
    assert data.train_inputs.shape == (18, 1, 28, 28)
    assert data.owners is not None
    assert data.owners.count("f03") == 7
    settings = {"dataset": "femnist", "folder": str(tmp_path), "partition": "natural", "clients": 3}
    experiment = from_table({"data": settings, "strategy": {"concurrency": 2}, "model": {"name": "cnn"}})
    assert experiment.make_task().sizes == [5, 6, 7]
    (tmp_path / "femnist" / "test" / "all_data_0.json").write_text('{"users": ["f01"]')
    with pytest.raises(fedfa.ConfigError, match=r"all_data_0\.json: is not LEAF's JSON, or cut short"):
        load("femnist", str(tmp_path), generator())


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
    data = load("femnist", str(tmp_path), generator())
    assert (len(data.train_targets), len(data.test_targets)) == (20, 5)
    assert data.owners is not None
    assert [data.owners.count(owner) for owner in ("0", "1")] == [8, 12]
    np.savez(folder / "some.npz", **arrays, split=(np.arange(25) >= 20).astype(np.uint8))
    assert len(load("femnist", str(tmp_path), generator()).test_targets) == 5
    (folder / "some.npz").write_bytes(b"PK cut")
    with pytest.raises(fedfa.ConfigError, match=r"some\.npz: cannot be read"):
        load("femnist", str(tmp_path), generator())


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    with pytest.raises(fedfa.ConfigError, match=r"say where it is: data\.folder, --data DIR or FEDFA_DATA"):
        load("cifar10", "", generator())
    with pytest.raises(fedfa.ConfigError, match="no such folder"):
        load("cifar10", str(tmp_path / "none"), generator())
    monkeypatch.setenv("FEDFA_DATA", str(tmp_path))
    with pytest.raises(fedfa.ConfigError, match="holds no femnist"):
        load("femnist", "", generator())


@pytest.mark.usefixtures("tiny")
def test_a_fraction_of_the_data(tmp_path: Path) -> None:
    write_binary(tmp_path)
    data = load("cifar10", str(tmp_path), generator()).part(0.4, generator())
    assert (len(data.train_targets), len(data.test_targets)) == (18, 4)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet18_has_the_usual_size_and_trains_both_ways(norm: Any) -> None:
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
            fedfa.FedFaDelta(concurrency=2, window=2), task, stop=fedfa.Stop(updates=6), engine={"executor": name}
        )
        for name in ("inline", "batched")
    ]
    assert [run.manifest["executor"] for run in runs] == ["inline", "batched"]
    moved = np.linalg.norm(runs[0].model - task.initial(0).vector)
    assert np.linalg.norm(runs[0].model - runs[1].model) < 1e-3 * moved


REAL = os.environ.get("FEDFA_DATA", "")


@pytest.mark.skipif(not REAL, reason="FEDFA_DATA does not say where real data is")
@pytest.mark.parametrize(("name", "train", "test"), [("cifar10", 50_000, 10_000), ("femnist", 1, 1)])
def test_the_real_data(name: str, train: int, test: int) -> None:
    data = load(name, REAL, generator())
    assert len(data.train_targets) >= train
    assert len(data.test_targets) >= test
    assert data.train_inputs.mean().abs() < 1.0
