"""How many cores a run of this process may use at the moment."""

import os
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds of computing, and in how many."""
_shared: Any = None


def share(number: Any) -> None:
    """From now on ``number.value`` is what each run of this process may use; whoever shares the cores may change it."""
    global _shared
    _shared = number


def cores() -> int:
    return machine_cores() if _shared is None else _shared.value


def machine_cores() -> int:
    """The cores that this process may run on."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = map(int, _QUOTA.read_text().split())  # "max" where there is no limit
        number = min(number, ceil(quota / period))
    return number
