"""The part of the page with everything needed to repeat the runs: settings, versions, commands."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedfa.report.shapes import by_label, clock_of, number
from fedfa.runs.run import Run

MOST_OPEN = 10
"""Longer lists of runs start folded."""


@dataclass(frozen=True, slots=True)
class Group:
    """A value, and the runs that have it."""

    text: str
    runs: list[str]


@dataclass(frozen=True, slots=True)
class Ending:
    """How one run ended."""

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The data of ``provenance.html``."""

    commands: list[str]
    strategies: list[tuple[str, str]]
    """By label: the settings that differ between strategies."""
    shared_settings: str
    """Settings that all strategies share."""
    weather: list[Group]
    executor: list[Group]
    machine: list[Group]
    clock: str
    """The header of the runs' own time."""
    endings: list[Ending]
    fold_endings: bool
    configuration: str
    """The part of the resolved experiment that all runs share, as JSON; empty if there is none."""


def provenance(runs: Sequence[Run], command: str) -> Provenance:
    """Settings that differ, shared settings, the machine, the endings, and the command."""
    groups = by_label(runs)
    firsts = [group[0] for group in groups.values()]
    recorded = dict.fromkeys(text for run in runs if (text := run.manifest.get("command")))
    settings = [run.manifest["strategy"] for run in firsts]
    same = shared(settings) if len(firsts) > 1 else {}
    config = shared([run.config for run in runs])
    return Provenance(
        commands=[command] if command else list(recorded),
        strategies=[
            (run.label, _inline({key: value for key, value in own.items() if key not in same}))
            for run, own in zip(firsts, settings, strict=True)
        ],
        shared_settings=_inline(same) if same else "",
        weather=_per_value(runs, "weather"),
        executor=_per_value(runs, "executor"),
        machine=_per_value(runs, "machine"),
        clock="Virtual (s)" if clock_of(runs) == "virtual" else "Clock (s)",
        endings=[_ending(run) for group in groups.values() for run in group],
        fold_endings=len(runs) > MOST_OPEN,
        configuration=json.dumps(config, indent=2, default=str, ensure_ascii=False) if config else "",
    )


def _per_value(runs: Sequence[Run], key: str) -> list[Group]:
    groups: dict[str, list[str]] = {}
    for run in runs:
        value = run.manifest[key]
        text = _inline(value) if isinstance(value, dict) else str(value)
        groups.setdefault(text, []).append(f"{run.label} seed {run.seed}")
    return [Group(text, names) for text, names in groups.items()]


def _ending(run: Run) -> Ending:
    accepted = len(run.accepted)
    times = (number(run.seconds), number(run.manifest["wall_seconds"]))
    counts = (f"{accepted:,}", f"{len(run.updates) - accepted:,}")
    return Ending(run.label, (str(run.seed), *times, *counts, str(run.manifest["ended"])))


def shared(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The part that all of these nested settings share."""
    first, *others = settings
    same: dict[str, Any] = {}
    for key, value in first.items():
        if all(key in other and other[key] == value for other in others):
            same[key] = value
        elif (
            isinstance(value, dict)
            and all(isinstance(other.get(key), dict) for other in others)
            and (inner := shared([value, *(other[key] for other in others)]))
        ):
            same[key] = inner
    return same


def _inline(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in settings.items()) or "–"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + _inline(value) + "}"
    return value if isinstance(value, str) else json.dumps(value, default=str)
