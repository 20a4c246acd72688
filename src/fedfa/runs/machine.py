"""Versions and hardware, to be quoted with every measured number."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedfa.runs.source import source_commit
from fedfa.version import __version__


def machine() -> dict[str, Any]:
    """JSON-ready."""
    return {
        "fedfa": __version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
    }


def _cpu() -> str:
    """The processor's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
