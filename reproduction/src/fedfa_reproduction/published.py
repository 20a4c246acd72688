"""The numbers that the paper prints."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper() -> dict[str, dict[str, dict[str, Any]]]:
    """By table, column and strategy."""
    return tomllib.loads((files("fedfa_reproduction") / "paper.toml").read_text())
