"""SST-2, from tiny copies of its real form."""

from pathlib import Path

import numpy as np
import pytest

from fedfa.learning.data import sst2
from fedfa.learning.data.registry import load
from tests.helpers.texts import error_of, write_sst2


def test_sst2_keeps_quotes_and_unusual_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sst2(tmp_path, monkeypatch)
    text = "sentence\tlabel\n\"an unpaired quote \t0\nof \x85 a `` kind '' \t1\ncr\xe8me \t1\n"
    (folder / "dev.tsv").write_text(text, "utf-8")
    monkeypatch.setitem(sst2.ROWS, "dev.tsv", 3)
    for where in (tmp_path, folder):
        data = load("sst2", str(where), np.random.default_rng(0))
        assert data.test_texts == ['"an unpaired quote', "of \x85 a `` kind ''", "cr\xe8me"]
        assert data.test_labels.tolist() == [0, 1, 1]
        assert len(data.train_texts) == len(data.train_labels) == 200
        assert (data.owners, data.classes) == (None, 2)


def test_damaged_sst2_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message() -> str:
        return error_of(load, "sst2", str(tmp_path), np.random.default_rng(0))

    assert "holds no sst2 or SST-2" in message()
    assert "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip" in message()
    train = write_sst2(tmp_path, monkeypatch) / "train.tsv"
    whole = train.read_text()
    train.write_text("\n".join(whole.split("\n")[:150]))
    assert "train.tsv: holds 149 rows, not 200: cut short? get https" in message()
    train.write_text(whole.replace("\t1\n", "\t7\n", 1))
    assert "train.tsv: label '7' is not one of 0, 1: damaged?" in message()
    train.write_text("no header\n")
    assert "does not begin with sentence<TAB>label" in message()
    train.write_bytes(b"sentence\tlabel\n\xff\xfe\t0\n")
    assert "train.tsv: cannot be read ('utf-8' codec" in message()
    train.unlink()
    assert "train.tsv: is missing" in message()
