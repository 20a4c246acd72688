"""Files that appear complete or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f".{path.name}.*"):  # left by a process that was killed while writing
        abandoned.unlink(missing_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
