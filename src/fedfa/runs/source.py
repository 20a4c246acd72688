"""The source of the running code: the commit of the package's checkout."""

import os
import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
GIT_SECONDS = 5.0
"""Seconds to wait for git: a record must not wait long for its commit."""


@cache
def source_commit(package: Path = PACKAGE) -> str | None:
    """The commit, with ``-dirty`` if the package's files differ from it; None outside a checkout or without git."""
    root = package.parent.parent
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", str(package))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(root: Path, *words: str) -> str:
    """Git's output for this checkout, even if the caller's environment names another one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(root), *words], env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE, timeout=GIT_SECONDS, check=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()
