"""Data sets, and the search for the user's own copy of one."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

from fedfa.errors import ConfigError, check, require


@dataclass(frozen=True)
class DataSet:
    """Training and test examples; ``owners`` holds the owner of each training example, if known."""

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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Where examples come from."""

    load: Callable[[Path, np.random.Generator], T]
    """Read the examples from the folder that holds the user's data sets."""
    find: Callable[[Path], Path] | None = None
    """The files below that folder; a ConfigError says what is missing. None: the data set is embedded."""
    remedy: str = ""
    """Where to get the files."""

    def read(self, name: str, folder: str, generator: np.random.Generator) -> T:
        return self.load(Path() if self.find is None else self.folder(name, folder), generator)

    def folder(self, name: str, folder: str) -> Path:
        """The user's folder of data sets: the given one, or else FEDFA_DATA."""
        where = folder or os.environ.get("FEDFA_DATA", "")
        check(bool(where), "dataset", name, f"say where it is: data.folder, --data DIR or FEDFA_DATA; {self.remedy}")
        root = Path(where).expanduser()
        require(root.is_dir(), f"data folder {where}: no such folder; give one that holds {name}; {self.remedy}")
        return root

    def locate(self, name: str, folder: str) -> None:
        """A ConfigError says what is missing, and the remedy."""
        if self.find is not None:
            self.find(self.folder(name, folder))


def subfolder(root: Path, names: Sequence[str], hint: str) -> Path:
    """The first of these folders below ``root``, or ``root`` itself if it is one of them."""
    for name in names:
        if root.name == name:
            return root
        if (root / name).is_dir():
            return root / name
    raise ConfigError(f"data folder {root}: holds no {' or '.join(names)}; {hint}")


def held_out(owners: Iterable[object], every: int) -> np.ndarray:
    """The examples to hold out for testing if the data marks none: every n-th of each owner."""
    counts: dict[object, int] = {}
    chosen = []
    for owner in owners:
        counts[owner] = count = counts.get(owner, 0) + 1
        chosen.append(count % every == 0)
    return np.array(chosen, bool)
