"""Flower apps: what their run config may say, and the folder that ``fedfa deploy init`` writes."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Literal

from fedfa.catalogue import meanings
from fedfa.errors import ConfigError, require
from fedfa.settings import build, suggest, to_toml

KINDS = ("digits", "own")
FOR_FOUR_SITES = {
    "strategy": "fedfa-param:concurrency=4:window=4",
    "stop_accuracy": 0.9,
    "target": 0.9,
    "evaluate_every": 2,
}
"""What a new app says instead of the defaults."""


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """What the run config of a deployment says; there, keys have hyphens."""

    out: str
    """Folder for the run's records, from where the SuperLink was started."""
    strategy: str = "fedfa-param"
    """NAME:KEY=VALUE:..., as in 'fedfa compare'; 'fedfa strategies' lists them."""
    seed: int = 0
    """Of the initial model, and of who gets work next."""
    resume: bool = False
    """Continue the unfinished run in the folder."""
    stop_updates: int = 0
    """End after so many accepted updates; 0: no such limit."""
    stop_seconds: float = 0.0
    """End after so many seconds; 0: no such limit."""
    stop_accuracy: float = 0.0
    """End at this test accuracy; 0: no such limit."""
    target: float = 0.0
    """Reports give the time to this accuracy; 0: none."""
    evaluate_every: int = 10
    """Accepted updates between evaluations, which the server makes."""
    keep_updates: bool = False
    """Keep every update on disk: the whole aggregation can then be computed again."""
    ttl_seconds: float = 3600.0
    """A client that has not answered by then is given up."""
    bench_seconds: float = 5.0
    """A node that failed gets no work for so long, twice as long each time in a row."""
    checkpoint_seconds: float = 60.0
    """Between checkpoints; a crash loses nothing, but what came since is read again."""
    wire: Literal["flat", "named"] = "flat"
    """named: PyTorch's tensors by name, for stock Flower clients."""
    client_threads: int = 1
    """Threads that a client trains with."""

    def __post_init__(self) -> None:
        require(self.out != "", "out = '': give the folder for the run's records")
        for name in ("ttl_seconds", "checkpoint_seconds", "client_threads"):
            require(getattr(self, name) > 0, f"{name} = {getattr(self, name)}: must be above 0")
        for name in ("stop_updates", "stop_seconds", "stop_accuracy", "target"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}: must be 0 or more")


def settings_of(run_config: Mapping[str, Any]) -> DeploymentSettings:
    """The settings in a run config; keys of the user's own are left to the app."""
    known = {f.name for f in fields(DeploymentSettings)}
    found = {key.replace("-", "_"): value for key, value in run_config.items()}
    return build(DeploymentSettings, {key: value for key, value in found.items() if key in known})


def check_app(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise a ConfigError where an app's run config, with these values in it, is none: before any daemon starts."""
    from fedfa.comparison import split_spec, strategy_from
    from fedfa.deployment import check_strategy

    file = folder / "pyproject.toml"
    try:
        table: Any = tomllib.loads(file.read_text())
        for name in ("tool", "flwr", "app", "config"):
            table = table.get(name, {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error})") from error
    for key in config:
        require(key in table, f"--set {key}: unknown key of the app's run config; {suggest(key, table)}")
    settings = settings_of({"out": "runs", **table, **config})
    if ":" not in split_spec(settings.strategy)[0]:  # file.py:Class is found where the app runs
        check_strategy(strategy_from(settings.strategy))


def require_flower() -> None:
    """Raise a ConfigError where Flower is not installed."""
    there = find_spec("flwr") is not None
    require(there, "Flower is not installed; install it with: pip install 'fedfa[flower]'")


def write_app(folder: Path, kind: str) -> None:
    """Write an app that runs as it stands."""
    require(kind in KINDS, f"--task {kind}: must be one of {', '.join(KINDS)}")
    name = re.sub(r"[^a-z0-9-]+", "-", folder.absolute().name.lower()).strip("-") or "app"
    source = files("fedfa") / "apps"
    texts = {
        "pyproject.toml": _project(name, kind),
        "task.py": (source / kind / "task.py").read_text(),
        "server_app.py": (source / "server_app.py").read_text(),
        "client_app.py": (source / "client_app.py").read_text(),
        "README.md": Template((source / "README.md").read_text()).substitute(name=name),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [file for file in texts if (folder / file).exists()]
        require(not taken, f"{folder}: holds {', '.join(taken)} already; give another folder")
        for file, text in texts.items():
            (folder / file).write_text(text)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror})") from error


def _project(name: str, kind: str) -> str:
    explained = meanings(DeploymentSettings)
    chosen: dict[str, Any] = {"out": f"runs/{name}", **FOR_FOUR_SITES}
    lines = []
    for f in fields(DeploymentSettings):
        value = chosen.get(f.name, f.default)
        lines += [f"# {explained[f.name]}", to_toml({f.name.replace("_", "-"): value}).strip()]
    return f"""\
[project]
name = "{name}"
version = "1.0.0"
description = "Federated training of {"the embedded digits" if kind == "digits" else "a model"} with fedfa"
license = "Apache-2.0"
dependencies = ["fedfa[flower]"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
{chr(10).join(lines)}
"""
