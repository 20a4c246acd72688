"""Sentiment140 (Go et al., 2009): tweets, negative (0) or positive (1) by the emoticon in them.

Reads the public file, with each user as the owner of their tweets, or any other CSV file with the header
target,id,date,user,text. In such a sample few users have more than one tweet; there the owner is the hour of posting.
Every tenth tweet of each owner is held out for testing, as in LEAF.
"""

from pathlib import Path

import numpy as np
import polars as pl

from fedfa.errors import ConfigError
from fedfa.learning.data.base import Source, held_out, subfolder
from fedfa.learning.data.text import TextSet, class_numbers, count_rows, read_csv, split

PUBLIC = "training.1600000.processed.noemoticon.csv"
ROWS = 1_600_000
COMPACT = ("target", "id", "date", "user", "text")
REMEDY = f"get {PUBLIC} from http://help.sentiment140.com/for-students and put it there"


def find(root: Path) -> Path:
    return root if (root / PUBLIC).is_file() else subfolder(root, ("sentiment140", "sent140"), REMEDY)


def is_public(root: Path) -> bool:
    """Whether the public file is there, or a part of it."""
    return (find(root) / PUBLIC).is_file()


def load(root: Path, generator: np.random.Generator) -> TextSet:
    folder = find(root)
    path = folder / PUBLIC
    if path.is_file():
        frame = read_csv(path, (*COMPACT[:3], "flag", *COMPACT[3:]), REMEDY, header=False, encoding="latin-1")
        count_rows(path, len(frame), ROWS, REMEDY)
        owners = frame["user"].to_list()
    else:
        path = _compact(folder)
        frame = read_csv(path, COMPACT, REMEDY, header=True)
        date = pl.col("date")
        owners = frame.select(date.str.slice(0, 13) + " " + date.str.slice(-4)).to_series().to_list()
    labels = class_numbers(frame["target"], {"0": 0, "4": 1}, path)
    return split(frame["text"].to_list(), labels, owners, held_out(owners, every=10), 2, path)


def _compact(folder: Path) -> Path:
    for path in sorted(folder.glob("*.csv")):
        with path.open("rb") as file:
            if file.readline().strip() == ",".join(COMPACT).encode():
                return path
    raise ConfigError(f"{folder}: holds neither {PUBLIC} nor a .csv with the header {','.join(COMPACT)}; {REMEDY}")


SOURCE = Source(load, find, REMEDY)
