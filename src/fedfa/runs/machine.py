"""Versions and hardware that a number should be quoted with."""

import os
import platform
from typing import Any

import numpy as np

import fedfa


def machine() -> dict[str, Any]:
    """Versions and hardware that a number should be quoted with."""
    import torch

    return {
        "fedfa": fedfa.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
