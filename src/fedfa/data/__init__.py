"""Data sets, one file each, and the ways to split them among clients.

Except for the embedded digits, data sets are the user's own copies: a folder given in the experiment
(``data.folder``), by ``--data DIR``, or in the environment variable FEDFA_DATA.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
from torch import Tensor

from fedfa.errors import ConfigError, require

NAMES = ("digits", "cifar10", "femnist")


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
    """The named data set; ``folder`` is looked into for all but the embedded one."""
    require(name in NAMES, f"dataset = {name!r}: must be one of {', '.join(NAMES)}")
    if name == "digits":
        from fedfa.data import digits

        return digits.load(generator)
    where = folder or os.environ.get("FEDFA_DATA", "")
    require(bool(where), f"dataset = {name!r}: say where it is: data.folder, --data DIR or FEDFA_DATA")
    root = Path(where).expanduser()
    require(root.is_dir(), f"data folder {where}: no such folder; give one that holds {name}")
    return import_module(f"fedfa.data.{name}").load(root)


def subfolder(root: Path, names: Sequence[str], hint: str) -> Path:
    """The first of these folders below ``root``, or ``root`` itself if it is one of them."""
    for name in names:
        if root.name == name:
            return root
        if (root / name).is_dir():
            return root / name
    raise ConfigError(f"data folder {root}: holds no {' or '.join(names)}; {hint}")


def locate(name: str, folder: str) -> Path:
    """The folder of a data set that is not embedded; a ConfigError says what is missing, and the remedy."""
    where = folder or os.environ.get("FEDFA_DATA", "")
    require(bool(where), f"dataset = {name!r}: say where it is: data.folder, --data DIR or FEDFA_DATA")
    root = Path(where).expanduser()
    require(root.is_dir(), f"data folder {where}: no such folder; give one that holds {name}")
    return import_module(f"fedfa.data.{name}").find(root)
