"""Versions and hardware, to be quoted with every measured number."""

import os
import platform
from importlib.metadata import version
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
        "cpus": os.cpu_count(),
    }
