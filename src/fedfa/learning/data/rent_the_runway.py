"""RentTheRunway (Misra et al., RecSys 2018): reviews of rented clothes, with 2, 4, 6, 8 or 10 points.

Reads the public ``renttherunway_final_data.json`` (one object per line, also .json.gz), or a CSV file with the same
keys as its header. Each user is the owner of their reviews, and every fifth of these is held out for testing.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedfa.errors import ConfigError
from fedfa.learning.data.base import Source, held_out, subfolder
from fedfa.learning.data.text import TextSet, class_numbers, read_csv, split

KEYS = ("user_id", "rating", "review_summary", "review_text")
CLASSES = {"2": 0, "4": 1, "6": 2, "8": 3, "10": 4}
REMEDY = (
    "get renttherunway_final_data.json.gz from https://cseweb.ucsd.edu/~jmcauley/datasets.html#clothing_fit "
    "and put it there"
)


def find(root: Path) -> Path:
    return subfolder(root, ("rent_the_runway",), REMEDY)


def load(root: Path, generator: np.random.Generator) -> TextSet:
    folder = find(root)
    files = [path for kind in ("*.json", "*.json.gz", "*.csv") for path in sorted(folder.glob(kind))]
    if not files:
        raise ConfigError(f"{folder}: holds no .json, .json.gz or .csv file; {REMEDY}")
    path = files[0]
    frame = read_csv(path, KEYS, REMEDY, header=True) if path.suffix == ".csv" else _json(path)
    text = pl.concat_str(
        pl.col("review_summary", "review_text").str.strip_chars().replace("", None), separator=". ", ignore_nulls=True
    )
    points = pl.col("rating").str.strip_chars().str.strip_suffix(".0")
    frame = frame.select("user_id", points.alias("rating"), text.alias("text"))
    frame = frame.filter(pl.col("rating") != "", pl.col("text") != "")
    owners = frame["user_id"].to_list()
    labels = class_numbers(frame["rating"], CLASSES, path)
    return split(frame["text"].to_list(), labels, owners, held_out(owners, every=5), len(CLASSES), path)


def _json(path: Path) -> pl.DataFrame:
    def text(value: Any) -> str:
        return "" if value is None else str(value)

    rows = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                rows.append([text(row.get(key)) for key in KEYS])
    except (OSError, EOFError, ValueError, AttributeError) as error:
        where = f"line {len(rows) + 1}, {error}"
        raise ConfigError(f"{path}: is not one JSON object per line, or cut short ({where}); {REMEDY}") from error
    return pl.DataFrame(rows, schema=dict.fromkeys(KEYS, pl.String), orient="row")


SOURCE = Source(load, find, REMEDY)
