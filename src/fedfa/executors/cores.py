"""How many cores there are."""

import os
from contextlib import suppress
from math import ceil
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds of computing, and in how many."""


def machine_cores() -> int:
    """The cores that this process may run on."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = map(int, _QUOTA.read_text().split())  # "max" where there is no limit
        number = min(number, ceil(quota / period))
    return number
