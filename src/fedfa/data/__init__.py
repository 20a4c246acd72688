"""Data sets, one file each, and the ways to split them among clients.

Except for the embedded digits, data sets are the user's own copies: a folder given in the experiment
(``data.folder``), by ``--data DIR``, or in the environment variable FEDFA_DATA.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fedfa.errors import ConfigError, require

if TYPE_CHECKING:
    from fedfa.data.text import TextSet

IMAGES = ("digits", "cifar10", "femnist")
TEXTS = ("sst2", "sent140", "twitter_entity", "rent_the_runway")
NAMES = IMAGES + TEXTS


@dataclass(frozen=True)
class DataSet:
    """Training and test examples; ``owners`` says whose each training example is, where that is known."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    owners: Sequence[object] | None = None

    def part(self, fraction: float, generator: np.random.Generator) -> "DataSet":
        """A random share of the training and of the test examples, for quick tries."""
        if fraction == 1.0:
            return self
        train, test = (
            np.sort(generator.permutation(len(targets))[: max(1, round(fraction * len(targets)))])
            for targets in (self.train_targets, self.test_targets)
        )
        return replace(
            self,
            train_inputs=self.train_inputs[train],
            train_targets=self.train_targets[train],
            test_inputs=self.test_inputs[test],
            test_targets=self.test_targets[test],
            owners=None if self.owners is None else [self.owners[position] for position in train],
        )


def load(name: str, folder: str, generator: np.random.Generator) -> DataSet:
    """The named images; ``folder`` is looked into for all but the embedded ones."""
    require(name in IMAGES, f"dataset = {name!r}: must be one of {', '.join(IMAGES)}")
    if name == "digits":
        from fedfa.data import digits

        return digits.load(generator)
    return import_module(f"fedfa.data.{name}").load(data_folder(name, folder))


def load_texts(name: str, folder: str) -> "TextSet":
    """The named texts, to be tokenised for a model (see tokens.py)."""
    require(name in TEXTS, f"dataset = {name!r}: must be one of {', '.join(TEXTS)}")
    return import_module(f"fedfa.data.{name}").load(data_folder(name, folder))


def data_folder(name: str, folder: str) -> Path:
    """Where the user keeps data sets, checked."""
    where, remedy = folder or os.environ.get("FEDFA_DATA", ""), import_module(f"fedfa.data.{name}").REMEDY
    require(bool(where), f"dataset = {name!r}: say where it is: data.folder, --data DIR or FEDFA_DATA; {remedy}")
    root = Path(where).expanduser()
    require(root.is_dir(), f"data folder {where}: no such folder; give one that holds {name}; {remedy}")
    return root


def locate(name: str, folder: str) -> Path:
    """Where the files of a data set are, unless it is embedded; a ConfigError says what is missing, and the remedy."""
    return import_module(f"fedfa.data.{name}").find(data_folder(name, folder))


def subfolder(root: Path, names: Sequence[str], hint: str) -> Path:
    """The first of these folders below ``root``, or ``root`` itself if it is one of them."""
    for name in names:
        if root.name == name:
            return root
        if (root / name).is_dir():
            return root / name
    raise ConfigError(f"data folder {root}: holds no {' or '.join(names)}; {hint}")


def held_out(owners: Iterable[object], every: int) -> np.ndarray:
    """Which examples are kept for testing where nothing says so: every n-th of each owner."""
    counts: dict[object, int] = {}
    chosen = []
    for owner in owners:
        counts[owner] = count = counts.get(owner, 0) + 1
        chosen.append(count % every == 0)
    return np.array(chosen, bool)
