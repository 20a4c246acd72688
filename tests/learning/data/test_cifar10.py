"""CIFAR-10, from tiny copies of its real forms."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedfa
from fedfa.learning.data import cifar10
from fedfa.learning.data.registry import load

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (9, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(9, dtype=np.uint8)
NAMES = [*cifar10.BATCHES, "test_batch"]


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """CIFAR-10 files of nine records, whose hashes are not checked."""
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
def test_damaged_python_batches_are_found_by_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_python(tmp_path)
    monkeypatch.setattr(cifar10, "MD5", {"data_batch_2": "0" * 32})
    with pytest.raises(fedfa.ConfigError, match="data_batch_2: has the wrong hash"):
        load("cifar10", str(tmp_path), generator())


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


@pytest.mark.usefixtures("tiny")
def test_a_fraction_of_the_data(tmp_path: Path) -> None:
    write_binary(tmp_path)
    data = load("cifar10", str(tmp_path), generator()).part(0.4, generator())
    assert (len(data.train_targets), len(data.test_targets)) == (18, 4)
