"""FEMNIST (Caldas et al., LEAF, arXiv:1812.01097): handwritten characters by writer, each writer a client.

Reads LEAF's own form (``femnist/train/*.json`` and ``femnist/test/*.json``, as its preprocess.sh writes them) or a
compact ``femnist/*.npz`` with arrays x (images), y, client and split (0 train, 1 test). Where nothing is marked as
test, every fifth example of each writer is held out.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import torch

from fedfa.errors import ConfigError, require
from fedfa.learning.data.base import DataSet, Source, held_out, subfolder

REMEDY = "make it with LEAF (https://github.com/TalwalkarLab/leaf, data/femnist/preprocess.sh -s niid -t sample)"

Rows = tuple[np.ndarray, np.ndarray, list[str]]


def find(root: Path) -> Path:
    return subfolder(root, ("femnist",), REMEDY)


def load(root: Path, generator: np.random.Generator) -> DataSet:
    folder = find(root)
    archives = sorted(folder.glob("*.npz"))
    data = folder / "data" if (folder / "data").is_dir() else folder
    if archives:
        train, test = _compact(archives[0])
    elif (data / "train").is_dir() and (data / "test").is_dir():
        train, test = _leaf(data / "train"), _leaf(data / "test")
    else:
        raise ConfigError(f"{folder}: holds neither train/ and test/ with LEAF's JSON nor an .npz; {REMEDY}")
    for rows, part in ((train, "training"), (test, "test")):
        require(len(rows[1]) > 0, f"{folder}: holds no {part} examples; {REMEDY}")
        require(int(rows[1].min()) >= 0, f"{folder}: label {rows[1].min()} is below 0: damaged? {REMEDY}")
    classes = int(max(train[1].max(), test[1].max())) + 1
    return DataSet(*_tensors(train), *_tensors(test), classes=classes, owners=train[2])


def _tensors(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Ink is 1 and paper 0; one channel."""
    images = torch.from_numpy(1.0 - rows[0].astype(np.float32)).view(-1, 1, 28, 28)
    return images, torch.from_numpy(rows[1].astype(np.int64))


def _compact(path: Path) -> tuple[Rows, Rows]:
    try:
        with np.load(path, allow_pickle=False) as file:
            x, y, client, split = (file[name] for name in ("x", "y", "client", "split"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {REMEDY}") from error
    require(x.shape[1:] == (28, 28), f"{path}: images are {x.shape[1:]}, not 28 x 28")
    require(len(x) == len(y) == len(client) == len(split), f"{path}: its arrays differ in length: damaged?")
    test = split == 1
    if not test.any():
        test = held_out(client.tolist(), every=5)

    def rows(chosen: np.ndarray) -> Rows:
        require(bool(chosen.any()), f"{path}: has too few examples to hold some out for testing")
        return x[chosen] / 255.0, y[chosen], [str(c) for c in client[chosen]]

    return rows(~test), rows(test)


def _leaf(folder: Path) -> Rows:
    files = sorted(folder.glob("*.json"))
    require(len(files) > 0, f"{folder}: holds no .json file; {REMEDY}")
    images, labels, owners = [], [], []
    for path in files:
        try:
            table = json.loads(path.read_text())
            for user in table["users"]:
                rows = table["user_data"][user]
                images.append(np.asarray(rows["x"], np.float32).reshape(-1, 28, 28))
                labels.append(np.asarray(rows["y"], np.int64))
                owners += [user] * len(labels[-1])
                require(len(images[-1]) == len(labels[-1]), f"{path}: {user} has not one label per image")
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{path}: is not LEAF's JSON, or cut short ({error}); {REMEDY}") from error
    require(len(images) > 0, f"{folder}: names no writer; {REMEDY}")
    return np.concatenate(images), np.concatenate(labels), owners


SOURCE = Source(load, find, REMEDY)
