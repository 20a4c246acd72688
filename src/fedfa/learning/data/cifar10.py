"""CIFAR-10 (A. Krizhevsky, 2009): 50,000 + 10,000 colour images of 32 x 32 pixels, ten classes.

Reads the public binary form (``cifar-10-batches-bin``), the public Python form (``cifar-10-batches-py``), or sheets of
10,000 tiles as JPEG with a label file each (``cifar10-jpeg``), whichever the folder holds.
"""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedfa.errors import ConfigError, require
from fedfa.learning.data.base import DataSet, Source, subfolder

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
RECORDS = 10_000
PIXELS = 3 * 32 * 32
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
REMEDY = "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there"


def find(root: Path) -> Path:
    return subfolder(root, ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10-jpeg"), REMEDY)


def load(root: Path, generator: np.random.Generator) -> DataSet:
    folder = find(root)
    read = {"cifar-10-batches-bin": _binary, "cifar-10-batches-py": _python, "cifar10-jpeg": _jpeg}[folder.name]
    train = [read(folder, name) for name in BATCHES]
    images = np.concatenate([images for images, _ in train])
    labels = np.concatenate([labels for _, labels in train])
    test_images, test_labels = read(folder, "test_batch")
    return DataSet(_normalised(images), _targets(labels), _normalised(test_images), _targets(test_labels), classes=10)


def _normalised(images: np.ndarray) -> torch.Tensor:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (torch.from_numpy(images).float().div_(255).sub_(mean)).div_(std)


def _targets(labels: np.ndarray) -> torch.Tensor:
    require(int(labels.max()) < 10, f"CIFAR-10: label {labels.max()} is not one of 0..9; the files are damaged")
    return torch.from_numpy(labels.astype(np.int64))


def _bytes(path: Path) -> bytes:
    require(path.is_file(), f"{path}: is missing; {REMEDY}")
    return path.read_bytes()


def _check_hash(path: Path, content: bytes) -> None:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    require(MD5.get(path.name, digest) == digest, f"{path}: has the wrong hash {digest}: damaged? {REMEDY}")


def _binary(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """One label byte and 3,072 bytes of red, green and blue planes per record."""
    path = folder / f"{name}.bin"
    content = _bytes(path)
    expected = RECORDS * (1 + PIXELS)
    require(len(content) == expected, f"{path}: has {len(content):,} bytes, not {expected:,}: cut short? {REMEDY}")
    _check_hash(path, content)
    records = np.frombuffer(content, np.uint8).reshape(RECORDS, 1 + PIXELS)
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), records[:, 0].copy()


class _OnlyArrays(pickle.Unpickler):
    """A pickle that can hold arrays and plain values, and run nothing."""

    ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # pyright: ignore
        ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # pyright: ignore
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, encoding: text.encode(encoding),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a data file")
        return self.ALLOWED[module, name]


def _python(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    path = folder / name
    content = _bytes(path)
    _check_hash(path, content)
    try:
        table = _OnlyArrays(io.BytesIO(content), encoding="bytes").load()
        images = np.asarray(table[b"data"], np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(table[b"labels"], np.uint8)
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {REMEDY}") from error
    require(len(images) == len(labels) == RECORDS, f"{path}: has {len(images):,} images, not {RECORDS:,}; {REMEDY}")
    return images, labels


def _jpeg(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A square sheet of 32 x 32 tiles, row by row, and one label byte per tile."""
    from PIL import Image, UnidentifiedImageError

    path = folder / f"{name}.jpg"
    labels = np.frombuffer(_bytes(folder / f"{name}.labels.u8"), np.uint8)
    try:
        sheet = np.asarray(Image.open(io.BytesIO(_bytes(path))).convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as a JPEG ({error})") from error
    side = round(RECORDS**0.5)
    require(sheet.shape == (32 * side, 32 * side, 3), f"{path}: is {sheet.shape[:2]}, not {side} x {side} tiles")
    require(len(labels) == RECORDS, f"{path}: has {len(labels):,} labels, not {RECORDS:,}")
    tiles = sheet.reshape(side, 32, side, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(-1, 3, 32, 32).copy(), labels.copy()


SOURCE = Source(load, find, REMEDY)
