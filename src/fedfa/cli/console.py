"""What commands share: common options, interruptions, names of folders, tables on the screen."""

import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfa.errors import ConfigError

File = Annotated[
    Path | None, typer.Argument(help="Experiment in TOML ('fedfa init' writes one); by default the embedded one.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; by default runs/NAME.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder with the data sets; by default FEDFA_DATA.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one machine-readable summary as the last line.")]


# Interruptions --------------------------------------------------------------------------------------------------------


INTERRUPTED = 130
"""The exit status of a command that was ended by Ctrl-C."""


class Interrupted(Exception):
    """Ctrl-C, with the command to continue."""


class interruptible:
    """Ctrl-C asks the run to save itself; a second one ends it at once."""

    def __enter__(self) -> Callable[[], bool]:
        self._asked = False
        self._before = signal.signal(signal.SIGINT, self._ask)
        return lambda: self._asked

    def _ask(self, *_: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __exit__(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, self._before)


def resume_hint(
    command: str, file: Path | None, folder: Path, overrides: list[str], strategies: str | None = None,
    seeds: str | None = None, target: float | None = None,
) -> str:  # fmt: skip
    words = ["fedfa", command, *([str(file)] if file else []), "--out", str(folder), "--resume"]
    for option, value in (("--strategies", strategies), ("--seeds", seeds), ("--target", target)):
        words += [option, str(value)] if value is not None else []
    for text in overrides:
        words += ["--set", text]
    look = shlex.join(["fedfa", "report", str(folder)])
    return f"Interrupted; the work is saved. See it so far: {look}. Continue with: {shlex.join(words)}"


# The request ----------------------------------------------------------------------------------------------------------


def overridden(set_: list[str] | None, data: Path | None) -> list[str]:
    """``--set`` and ``--data`` as overrides of the experiment."""
    return [*(set_ or []), *([f"data.folder={json.dumps(str(data.absolute()))}"] if data else [])]


def seed_numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--seeds {text}: must be whole numbers, 0 or more, with commas, for example 0,1,2")
    return [int(part) for part in parts]


def free_folder(wanted: Path, resume: bool) -> Path:
    """``wanted``, or the first of wanted-2, wanted-3, ... that is free; to resume, the last one without its report."""
    taken = [wanted] if wanted.exists() else []
    while taken and (following := wanted.with_name(f"{wanted.name}-{len(taken) + 1}")).exists():
        taken.append(following)
    if resume:
        if not taken:
            raise ConfigError(f"--resume: there is no run in {wanted}; give its folder with --out")
        return next((folder for folder in reversed(taken) if not (folder / "report.html").exists()), taken[-1])
    return wanted.with_name(f"{wanted.name}-{len(taken) + 1}") if taken else wanted


def command_typed(*program: str) -> str:
    """The command in the form for records: without this machine's own paths. ``program``: by default fedfa."""
    words: list[str] = []
    for word in [*(program or ["fedfa"]), *sys.argv[1:]]:
        option, equals, value = word.rpartition("=")
        if words[-1:] == ["--data"] or option in ("--data", "data.folder"):
            value = "DIR"
        elif Path(value).is_absolute():
            value = Path(value).name
        words.append(f"{option}{equals}{value}")
    return shlex.join(words)


def print_table(table: Any) -> None:
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)
