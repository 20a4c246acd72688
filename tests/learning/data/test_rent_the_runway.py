"""RentTheRunway, from tiny copies of its real forms."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfa.learning.data.registry import load
from tests.helpers.texts import error_of

REVIEWS: list[dict[str, Any]] = [
    {"user_id": "u1", "rating": str(2 + 2 * (n % 5)), "review_summary": f"sum {n}", "review_text": f'tex"t, {n}'}
    for n in range(10)
]
REVIEWS += [
    {"user_id": "u2", "rating": "10", "review_summary": "", "review_text": "only\ntext"},
    {"user_id": "u2", "rating": None, "review_summary": "no rating", "review_text": "dropped"},
    {"user_id": "u2", "rating": "8", "review_summary": "", "review_text": " "},
]


@pytest.mark.parametrize("kind", ["csv", "json", "json.gz"])
def test_rent_the_runway_in_all_forms(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "rent_the_runway"
    folder.mkdir()
    assert "holds no .json, .json.gz or .csv file" in error_of(
        load, "rent_the_runway", str(tmp_path), np.random.default_rng(0)
    )
    file = folder / f"renttherunway_final_data.{kind}"
    if kind == "csv":

        def cell(value: str | None) -> str:
            return "" if value is None else '"' + value.replace('"', '""') + '"'

        rows = [
            f"{row['user_id']},1,{row['rating'] + '.0' if row['rating'] else ''},fit,{cell(row['review_summary'])},"
            f'{cell(row["review_text"])},"May 1, 2017"'
            for row in REVIEWS
        ]
        header = "user_id,item_id,rating,fit,review_summary,review_text,review_date"
        file.write_text("\n".join([header, *rows]) + "\n")
    else:
        content = "".join(json.dumps(row) + "\n" for row in REVIEWS).encode()
        file.write_bytes(gzip.compress(content) if kind == "json.gz" else content)
    data = load("rent_the_runway", str(tmp_path), np.random.default_rng(0))
    assert data.test_texts == ['sum 4. tex"t, 4', 'sum 9. tex"t, 9']
    assert data.train_texts[-1] == "only\ntext"
    assert data.train_labels.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert data.owners == ["u1"] * 8 + ["u2"]
    if kind == "csv":
        file.write_text(file.read_text().replace(",10.0,", ",11.0,"))
        assert "label '11' is not one of 2, 4, 6, 8, 10" in error_of(
            load, "rent_the_runway", str(tmp_path), np.random.default_rng(0)
        )
    else:
        file.write_bytes(file.read_bytes()[:-20])
        message = error_of(load, "rent_the_runway", str(tmp_path), np.random.default_rng(0))
        assert "is not one JSON object per line, or cut short" in message
        assert "https://cseweb.ucsd.edu/~jmcauley/datasets.html#clothing_fit" in message
