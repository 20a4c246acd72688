"""The runs below a folder as they stand now."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from fedfa.errors import RecordError
from fedfa.runs.live import FILE, over
from fedfa.runs.store import CHECKPOINT, MANIFEST, UNFINISHED, read_run

MOST_RUNS = 100
"""Those under way are listed first."""
_FILES = (MANIFEST, FILE, UNFINISHED, CHECKPOINT)


class Runs:
    """Looks at a folder again and again; what has not changed is not read twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._lock = Lock()
        self.left_out = 0
        """Runs that were there at the last look, beyond the most that are listed."""

    def look(self) -> dict[str, dict[str, Any]]:
        """The state of every run (see ``live``) by its folder's name; one in the folder itself is called "."."""
        with self._lock:
            found = sorted(self._places(), key=lambda place: (_FILES.index(place[1]) != 1, place[0]))
            self.left_out, found = max(0, len(found) - MOST_RUNS), found[:MOST_RUNS]
            self._read = {path: read for path, read in self._read.items() if (path.parent, path.name) in found}
            states = {place.relative_to(self.folder).as_posix(): self._state(place / file) for place, file in found}
        return {name: self._aged(state) for name, state in states.items() if state}

    def _places(self) -> Iterator[tuple[Path, str]]:
        """Folders of runs, with the file that tells most about each."""
        for folder, below, files in os.walk(self.folder):
            below[:] = [name for name in below if not name.startswith(".")]
            telling = next((file for file in _FILES if file in files), None)
            if telling:
                yield Path(folder), telling

    def _state(self, path: Path) -> dict[str, Any]:
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if path not in self._read or self._read[path][0] != version:
                self._read[path] = (version, self._load(path))
            return self._read[path][1]
        except (OSError, ValueError):  # gone since: it will be found as what it has become
            return {}

    def _load(self, path: Path) -> dict[str, Any]:
        match path.name:
            case "live.json":
                return json.loads(path.read_text())
            case "manifest.json" | "unfinished.json":
                try:
                    return over(read_run(path.parent, or_unfinished=True))
                except RecordError as error:
                    return {"state": str(error)}
            case _:
                return {"state": "saved"}

    def _aged(self, state: dict[str, Any]) -> dict[str, Any]:
        return state | ({"age": max(0.0, time.time() - state["written"])} if "written" in state else {})
