"""Flower apps: the check of their run config, and the folder that ``fedfa deploy init`` writes."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from fedfa.deployment.engine import check_strategy
from fedfa.deployment.settings import DeploymentSettings, settings_of
from fedfa.errors import ConfigError, require
from fedfa.settings import meanings, suggest, to_toml
from fedfa.strategies.specs import split_spec, strategy_from

KINDS = ("digits", "own")
FOR_FOUR_SITES = {
    "strategy": "fedfa-param:concurrency=4:window=4",
    "stop_accuracy": 0.9,
    "target": 0.9,
    "evaluate_every": 2,
}
"""Settings of a new app that differ from the defaults."""


def check_app(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise a ConfigError unless an app's run config with these values is valid; called before any daemon starts."""

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
    """Raise a ConfigError if Flower is not installed."""
    there = find_spec("flwr") is not None
    require(there, "Flower is not installed; install it with: pip install 'fedfa[flower]'")


def write_app(folder: Path, kind: str) -> None:
    """Write an app that runs without changes."""
    require(kind in KINDS, f"--task {kind}: must be one of {', '.join(KINDS)}")
    name = re.sub(r"[^a-z0-9-]+", "-", folder.absolute().name.lower()).strip("-") or "app"
    source = files("fedfa.deployment") / "templates"
    texts = {
        "pyproject.toml": _project(name, kind),
        "task.py": (source / f"{kind}_task.py").read_text(),
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
