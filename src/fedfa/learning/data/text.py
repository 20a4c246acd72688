"""What the text data sets share: the raw examples, and reading their files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl

from fedfa.errors import ConfigError, in_a_line, require


@dataclass(frozen=True, slots=True)
class TextSet:
    """Training and test texts with their classes; ``owners`` holds the owner of each training text, if known."""

    train_texts: list[str]
    train_labels: np.ndarray
    test_texts: list[str]
    test_labels: np.ndarray
    classes: int
    owners: Sequence[object] | None = None


def split(
    texts: Sequence[str], labels: np.ndarray, owners: Sequence[object], test: np.ndarray, classes: int, where: Path
) -> TextSet:
    """Examples with some marked as test."""
    require(0 < test.sum() < len(test), f"{where}: has too few examples to hold some out for testing")
    return TextSet(
        list(compress(texts, ~test)),
        labels[~test],
        list(compress(texts, test)),
        labels[test],
        classes,
        list(compress(owners, ~test)),
    )


def class_numbers(values: Iterable[object], classes: Mapping[str, int], where: Path) -> np.ndarray:
    """The class of each label, from its text in the file."""
    written = [str(value) for value in values]
    unknown = set(written) - classes.keys()
    require(not unknown, f"{where}: label {min(unknown, default='')!r} is not one of {', '.join(classes)}: damaged?")
    return np.array([classes[value] for value in written], np.int64)


def read_csv(path: Path, columns: Sequence[str], remedy: str, *, header: bool, encoding: str = "utf8") -> pl.DataFrame:
    """These columns of a CSV file, all as texts; without a header the file has exactly these, in this order."""
    try:
        with path.open("rb") as file:
            file.seek(-1, 2)
            require(file.read(1) == b"\n", f"{path}: does not end with the end of a line: cut short? {remedy}")
        frame = pl.read_csv(path, has_header=header, infer_schema=False, encoding=encoding)
    except (OSError, UnicodeError, pl.exceptions.PolarsError) as error:
        raise ConfigError(f"{path}: cannot be read ({in_a_line(error)}); {remedy}") from error
    if not header:
        require(frame.width == len(columns), f"{path}: has {frame.width} columns, not {len(columns)}; {remedy}")
        frame.columns = list(columns)
    missing = [name for name in columns if name not in frame.columns]
    require(not missing, f"{path}: has no column {', '.join(missing)}; {remedy}")
    return frame.select(pl.col(columns).fill_null(""))


def count_rows(path: Path, found: int, expected: int, remedy: str) -> None:
    """A public file has a known number of rows."""
    require(found == expected, f"{path}: holds {found:,} rows, not {expected:,}: cut short? {remedy}")
