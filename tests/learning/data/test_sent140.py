"""Sentiment140, from tiny copies of its real forms."""

from pathlib import Path

import numpy as np
import pytest

from fedfa.learning.data import sent140
from fedfa.learning.data.registry import load
from tests.helpers.texts import error_of


def tweet(target: int, number: int, user: str, text: str) -> str:
    quoted = text.replace('"', '""')
    return f'"{target}","{number}","Mon Apr 06 22:19:{number:02d} PDT 2009","NO_QUERY","{user}","{quoted}"'


def test_sent140_in_its_public_form_is_split_by_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [tweet(0, n, "ann", f"tweet {n}") for n in range(20)]
    rows += [tweet(4, 20, "bob", 'caf\xe9, "so good",\nreally'), tweet(4, 21, "bob", "\xbd price")]
    (tmp_path / sent140.PUBLIC).write_bytes("\n".join(rows).encode("latin-1") + b"\n")
    monkeypatch.setattr(sent140, "ROWS", 22)
    data = load("sent140", str(tmp_path), np.random.default_rng(0))
    assert data.test_texts == ["tweet 9", "tweet 19"]  # every tenth of each user
    assert data.train_texts[-2:] == ['caf\xe9, "so good",\nreally', "\xbd price"]
    assert data.train_labels.tolist() == [0] * 18 + [1, 1]
    assert data.owners == ["ann"] * 18 + ["bob"] * 2
    monkeypatch.setattr(sent140, "ROWS", 1_600_000)
    message = error_of(load, "sent140", str(tmp_path), np.random.default_rng(0))
    assert "holds 22 rows, not 1,600,000: cut short?" in message
    assert "http://help.sentiment140.com/for-students" in message


def test_sent140_in_the_compact_form_is_split_by_hour(tmp_path: Path) -> None:
    folder = tmp_path / "sentiment140"
    folder.mkdir()
    assert "nor a .csv with the header target,id,date,user,text" in error_of(
        load, "sent140", str(tmp_path), np.random.default_rng(0)
    )
    (folder / "another.csv").write_text("a,b\n1,2\n")
    file = folder / "some.csv"
    rows = [f"{4 * (n % 2)},{n},Mon Apr 06 {22 + n // 20}:19:45 PDT 2009,ann,caf\xe9 {n}" for n in range(40)]
    file.write_text("\n".join(["target,id,date,user,text", *rows]), "utf-8")
    assert "some.csv: does not end with the end of a line: cut short?" in error_of(
        load, "sent140", str(tmp_path), np.random.default_rng(0)
    )
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    data = load("sent140", str(tmp_path), np.random.default_rng(0))
    assert set(data.owners or ()) == {"Mon Apr 06 22 2009", "Mon Apr 06 23 2009"}
    assert data.test_texts == [f"caf\xe9 {n}" for n in (9, 19, 29, 39)]
    file.write_text(file.read_text("utf-8").replace("\n4,", "\n2,"), "utf-8")
    assert "some.csv: label '2' is not one of 0, 4" in error_of(
        load, "sent140", str(tmp_path), np.random.default_rng(0)
    )
