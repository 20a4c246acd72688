"""The runs below a folder and their present state."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from fedfa.errors import RecordError
from fedfa.runs.live import FILE, over
from fedfa.runs.snapshot import Snapshot, State
from fedfa.runs.store import CHECKPOINT, MANIFEST, UNFINISHED, read_run

MOST_RUNS = 100
"""Runs in progress are listed first."""
_FILES = (MANIFEST, FILE, UNFINISHED, CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a run."""

    state: State
    ended: str = ""
    """The limit that ended it, or its error."""
    snapshot: Snapshot | None = None
    """None if only a checkpoint is left, or if the records cannot be read."""
    age: float = 0.0
    """Seconds since its last news."""


class Runs:
    """Reads a folder repeatedly; unchanged files are not read twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[int, int], Seen]] = {}
        self._lock = Lock()
        self.left_out = 0
        """Runs at the last look that exceed the length of the list."""

    def look(self) -> dict[str, Seen]:
        """Every run by its folder's name; one in the folder itself is called "."."""
        with self._lock:
            found = sorted(self._places(), key=lambda place: (place[1] != FILE, place[0]))
            self.left_out, found = max(0, len(found) - MOST_RUNS), found[:MOST_RUNS]
            self._read = {path: read for path, read in self._read.items() if (path.parent, path.name) in found}
            seen = {place.relative_to(self.folder).as_posix(): self._seen(place / file) for place, file in found}
        return {name: _aged(run) for name, run in seen.items() if run is not None}

    def _places(self) -> Iterator[tuple[Path, str]]:
        """Folders of runs, each with its most informative file."""
        for folder, below, files in os.walk(self.folder):
            below[:] = [name for name in below if not name.startswith(".")]
            telling = next((file for file in _FILES if file in files), None)
            if telling:
                yield Path(folder), telling

    def _seen(self, path: Path) -> Seen | None:
        """None if the file is gone meanwhile, or is not a run's: the next look finds its new state."""
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if path not in self._read or self._read[path][0] != version:
                self._read[path] = (version, _load(path))
            return self._read[path][1]
        except (OSError, ValueError):
            return None


def _load(path: Path) -> Seen:
    if path.name == CHECKPOINT:
        return Seen("interrupted")
    try:
        snapshot = (
            Snapshot.from_json(path.read_text())
            if path.name == FILE
            else over(read_run(path.parent, or_unfinished=True))
        )
    except RecordError as error:
        return Seen("failed", str(error))
    return Seen(snapshot.state, snapshot.ended, snapshot)


def _aged(run: Seen) -> Seen:
    written = run.snapshot and run.snapshot.written
    return run if written is None else replace(run, age=max(0.0, time.time() - written))
