"""The part of the page that lets someone else redo the runs: settings, versions, commands."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fedfa.report.shapes import by_label, clock_of, number
from fedfa.runs.run import Run

MOST_OPEN = 10
"""Longer lists of runs start folded."""


def provenance_section(runs: Sequence[Run], command: str) -> str:
    """Settings that differ, settings that do not, where it ran, how it ended, and the command."""
    firsts = [group[0] for group in by_label(runs).values()]
    parts = [
        "<section><h2>How it was run</h2>",
        "<h3>Command</h3>",
        _commands(runs, command),
        "<h3>Strategies</h3>",
        _strategies(firsts),
        "<h3>Weather</h3>",
        *_per_value(runs, "weather"),
        "<h3>Executor and machine</h3>",
        *_per_value(runs, "executor"),
        *_per_value(runs, "machine"),
        _endings(runs),
        *_configuration(runs),
        "</section>",
    ]
    return "\n".join(parts)


def _commands(runs: Sequence[Run], command: str) -> str:
    found = [command] if command else list(dict.fromkeys(filter(None, (run.manifest.get("command") for run in runs))))
    if not found:
        return '<p class="caption">Started from Python; no command was recorded.</p>'
    return _code("\n".join(found), "command")


def _strategies(runs: Sequence[Run]) -> str:
    """What sets the strategies apart, by label, and below it what they share."""
    settings = [run.manifest["strategy"] for run in runs]
    same = shared(settings) if len(runs) > 1 else {}
    lines = [
        f'<tr><th scope="row">{escape(run.label).replace(":", ":<wbr>")}</th>'
        f'<td class="text wide">{escape(_inline({k: v for k, v in own.items() if k not in same}))}</td></tr>'
        for run, own in zip(runs, settings, strict=True)
    ]
    head = '<thead><tr><th scope="col">Strategy</th><th scope="col" style="text-align:left">Settings</th></tr></thead>'
    table = f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'
    return table + (f'<p class="caption">Shared by all: {escape(_inline(same))}.</p>' if same else "")


def _per_value(runs: Sequence[Run], key: str) -> list[str]:
    """The value once where all runs agree, else each with the runs that have it."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        value = run.manifest[key]
        text = _inline(value) if isinstance(value, dict) else str(value)
        groups.setdefault(text, []).append(f"{run.label} seed {run.seed}")
    if len(groups) == 1:
        return [f"<p>{escape(text)}</p>" for text in groups]
    return [f"<p>{escape(text)} <small>({escape(', '.join(names))})</small></p>" for text, names in groups.items()]


def _endings(runs: Sequence[Run]) -> str:
    names = (
        "Run",
        "Seed",
        "Virtual (s)" if clock_of(runs) == "virtual" else "Clock (s)",
        "Wall (s)",
        "Accepted",
        "Not accepted",
        "Ended",
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = []
    for run in (run for group in by_label(runs).values() for run in group):
        accepted, ended = len(run.accepted), str(run.manifest["ended"])
        times = (number(run.seconds), number(run.manifest["wall_seconds"]))
        values = (str(run.seed), *times, f"{accepted:,}", f"{len(run.updates) - accepted:,}", escape(ended))
        rest = "".join(f"<td>{value}</td>" for value in values)
        label = escape(run.label).replace(":", ":<wbr>")
        lines.append(f'<tr><th scope="row">{label}</th>{rest}</tr>')
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    fold = "" if len(runs) > MOST_OPEN else " open"
    return f"<details{fold}><summary>Runs and how they ended</summary>{table}</details>"


def _configuration(runs: Sequence[Run]) -> list[str]:
    """The resolved experiment, as far as the runs have the same."""
    same = shared([run.config for run in runs])
    if not same:
        return []
    what = "Configuration" if len(runs) == 1 else "Configuration shared by all runs"
    text = json.dumps(same, indent=2, default=str, ensure_ascii=False)
    return [f"<details><summary>{what}</summary>{_code(text, 'configuration')}</details>"]


def shared(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The part that is the same in all of these nested settings."""
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


def _code(text: str, name: str) -> str:
    return f'<pre id="{name}"><code>{escape(text)}</code></pre>'
