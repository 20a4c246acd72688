"""The journal: torn, damaged, shared and incomplete files."""

from pathlib import Path

import numpy as np
import pytest

from fedfa import (
    RecordError,
)
from fedfa.deployment import journal


def write_three(folder: Path) -> bytes:
    log = journal.Journal(folder)
    for number in range(3):
        log.append({"kind": "update", "number": number}, np.full(5, number, np.float32))
    log.close()
    return (folder / "000000.log").read_bytes()


def test_a_torn_last_entry_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = write_three(tmp_path / "whole")
    second_end = len(whole) * 2 // 3
    for cut in range(second_end, len(whole)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        for tail in (b"", b"\0" * (len(whole) - cut)):  # lost, or never written though the file had grown
            (folder / "000000.log").write_bytes(whole[:cut] + tail)
            if whole[:cut] + tail == whole:
                continue
            assert [entry.header["number"] for entry in journal.read(folder)] == [0, 1]
            log = journal.Journal(folder)
            log.append({"kind": "lost", "number": 9})
            log.close()
            assert [entry.header["number"] for entry in journal.read(folder)] == [0, 1, 9]


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    whole = bytearray(write_three(tmp_path))
    whole[len(whole) // 2] ^= 1
    (tmp_path / "000000.log").write_bytes(whole)
    with pytest.raises(RecordError, match="damaged at byte"):
        list(journal.read(tmp_path))


def test_only_one_process_may_write_a_journal(tmp_path: Path) -> None:
    first = journal.Journal(tmp_path)
    with pytest.raises(RecordError, match="another server still writes it"):
        journal.Journal(tmp_path)
    first.close()
    journal.Journal(tmp_path).close()


def test_missing_segments_are_an_error(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path)
    for _ in range(2):
        log.next_segment()
    log.close()
    (tmp_path / "000001.log").unlink()
    with pytest.raises(RecordError, match="segments are missing"):
        list(journal.read(tmp_path))
