"""The write-ahead journal of a deployment: what happened, on disk before it changes anything.

    RUN/journal/000000.log, 000001.log, ...       segments, in order; each append-only

A segment is a sequence of entries with nothing before, between or after them (numbers little-endian):

    4 bytes   "fdfa"
    uint32    length of the header
    uint64    length of the payload
    uint32    CRC-32 of header and payload
    header    JSON, UTF-8
    payload   raw float32 numbers, or nothing

``kind`` in the header says what happened, ``seconds`` when (wall seconds since the run began):

    begin     the run starts; payload: the initial model. strategy (name and settings), num_trainable, seed, started
              (Unix time), fingerprint
    client    a node was seen for the first time: node (Flower's id), client (its number in this run)
    dispatch  client was handed the newest model: dispatch (running number), client, base_version
    update    an answer came; payload: the client's model. client, dispatch, base_version, num_examples, num_steps,
              loss. The strategy decides whether to accept it; that is not stored
    lost      no usable answer will come: client, dispatch, outcome (why); blameless where it is not the client's fault

A strategy that begins with the model of ``begin`` and gets these entries in order goes through exactly the same
states: ``update`` is its ``receive``, with base = the model published as base_version, and ``lost`` its ``lost``. A
process that is killed while it writes leaves a torn last entry. It was never applied, and is cut off on opening.
"""

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fedfa.errors import RecordError

_HEAD = struct.Struct("<4sIQI")
_MAGIC = b"fdfa"
FOLDER = "journal"


class Entry(NamedTuple):
    header: dict[str, Any]
    params: np.ndarray | None


class Journal:
    """Appends to the last segment of a folder; locks the folder against other writers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RecordError(f"{folder}: another server still writes it; stop that one first") from None
        found = segments(folder)
        self.segment = max(found, default=-1)
        self.num_bytes = 0
        self._file: BinaryIO | None = None
        if found:
            path = found[self.segment]
            self.num_bytes = sum(_HEAD.size + header + payload for header, payload in _sound(path, last=True))
            self._file = path.open("r+b")
            self._file.truncate(self.num_bytes)
            self._file.seek(self.num_bytes)
        else:
            self.next_segment()

    def append(self, header: dict[str, Any], params: np.ndarray | None = None, durable: bool = True) -> None:
        """Write an entry; on return it is on disk, with all before it, if it is to be durable."""
        assert self._file is not None
        text = json.dumps(header, separators=(",", ":")).encode()
        payload = b"" if params is None else np.ascontiguousarray(params, "<f4").data.cast("B")
        self._file.write(_HEAD.pack(_MAGIC, len(text), len(payload), zlib.crc32(payload, zlib.crc32(text))))
        self._file.write(text)
        self._file.write(payload)
        self.num_bytes += _HEAD.size + len(text) + len(payload)
        if durable:
            self._file.flush()
            os.fsync(self._file.fileno())

    def next_segment(self) -> int:
        """Start a new segment; its number."""
        self._close_segment()
        self.segment += 1
        self._file = _path(self.folder, self.segment).open("xb")
        self.num_bytes = 0
        os.fsync(self._lock)  # the folder's own entry for the new file
        return self.segment

    def drop_before(self, segment: int) -> None:
        for number, path in segments(self.folder).items():
            if number < segment:
                path.unlink()

    def close(self) -> None:
        """Flush everything and unlock the folder; may be called again."""
        self._close_segment()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_segment(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def model_digest(model: np.ndarray) -> str:
    """Tells models apart, to the bit."""
    return blake2b(model.tobytes(), digest_size=16).hexdigest()


def segments(folder: Path) -> dict[int, Path]:
    """The segments in a journal's folder by number, in order."""
    return {int(path.stem): path for path in sorted(folder.glob("[0-9]*.log"))}


def read(folder: Path, first: int = 0) -> Iterator[Entry]:
    """All whole entries from this segment on, in order."""
    found = {number: path for number, path in segments(folder).items() if number >= first}
    if list(found) != list(range(first, first + len(found))):
        raise RecordError(f"{folder}: segments are missing, there are {', '.join(map(str, found))}")
    for number, path in found.items():
        with path.open("rb") as file:
            for length, size in _sound(path, last=number == max(found)):
                file.seek(_HEAD.size, os.SEEK_CUR)
                header = json.loads(file.read(length))
                yield Entry(header, np.frombuffer(file.read(size), "<f4") if size else None)


def _sound(path: Path, last: bool) -> Iterator[tuple[int, int]]:
    """Lengths of header and payload of each whole entry; a torn one may only be the last one of the journal."""
    with path.open("rb") as file:
        total = file.seek(0, os.SEEK_END)
        start = 0
        while start < total:
            found = _whole_entry(file, start, total)
            if found is None:
                if not last or _any_entry_after(file, start, total):
                    raise RecordError(f"{path}: damaged at byte {start}; restore the run's folder from a backup")
                return
            yield found
            start += _HEAD.size + sum(found)


def _whole_entry(file: BinaryIO, start: int, total: int) -> tuple[int, int] | None:
    """Lengths of header and payload, if an undamaged entry starts here."""
    file.seek(start)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, length, size, crc = _HEAD.unpack(head)
    rest = length + size
    if magic != _MAGIC or length == 0 or start + _HEAD.size + rest > total:
        return None
    found = 0
    while rest > 0:
        part = file.read(min(rest, 1 << 20))
        found, rest = zlib.crc32(part, found), rest - len(part)
    return (length, size) if found == crc else None


def _any_entry_after(file: BinaryIO, start: int, total: int) -> bool:
    file.seek(start + 1)
    rest = file.read()
    place = rest.find(_MAGIC)
    while place >= 0:
        if _whole_entry(file, start + 1 + place, total):
            return True
        place = rest.find(_MAGIC, place + 1)
    return False


def _path(folder: Path, segment: int) -> Path:
    return folder / f"{segment:06d}.log"
