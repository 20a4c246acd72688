"""One run as the page shows it: numbers, tables, and figures in the shapes of the report."""

import math
from typing import Any

from fedfa.report.interactive import as_plotly
from fedfa.report.shapes import number, size_in_bytes
from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.snapshot import EvaluationPoint, Snapshot
from fedfa.watch.figures import figures, is_slow, usual_seconds
from fedfa.watch.runs import Seen
from fedfa.watch.words import duration, moment, percent, rate

QUIET_SECONDS = 5.0
"""Seconds without news after which a run counts as silent."""
MOST_LONGEST = 8


def view(name: str, runs: dict[str, Seen], folder: str, left_out: int = 0) -> dict[str, Any]:
    """The data for the page, JSON-ready: the run of this name, else the one in progress, else the first."""
    fallback = next((other for other, run in runs.items() if run.state == "running"), next(iter(runs), ""))
    chosen = name if name in runs else fallback
    kind, text = standing(runs[chosen]) if runs else ("waiting", f"waiting: there is no run in {folder} yet")
    shown: dict[str, Any] = {
        "run": chosen,
        "runs": [_row(other, run) for other, run in runs.items()],
        "left_out": f"and {left_out:,} more; watch a folder further down to see them" if left_out else "",
        "kind": kind,
        "standing": text,
    }
    snapshot = runs[chosen].snapshot if runs else None
    return _plain(shown | _content(snapshot) if snapshot else shown)


def standing(run: Seen) -> tuple[str, str]:
    """The state of a run: one word for the page's colours, and a sentence."""
    match run.state:
        case "running" if run.age > QUIET_SECONDS:
            return "silent", f"no news for {duration(run.age)}"
        case "running":
            return "running", "running"
        case "finished":
            return "finished", f"finished: {run.ended}"
        case "interrupted":
            deployed = run.snapshot is not None and run.snapshot.about.clock == "wall"
            how = "-c resume=true" if deployed else "--resume"
            return "stopped", f"interrupted; continue it with the command that began it, and {how}"
        case "failed":
            return "failed", f"ended: {run.ended}"


def _row(name: str, run: Seen) -> dict[str, str]:
    """One line of the list of runs."""
    kind, _ = standing(run)
    if run.snapshot is None:
        return {"name": name, "kind": kind, "done": "", "updates": "", "accuracy": ""}
    evaluations = run.snapshot.totals.evaluations
    return {
        "name": name,
        "kind": kind,
        "done": f"{100 * run.snapshot.share_done:.0f} %",
        "updates": f"{run.snapshot.accepted:,}",
        "accuracy": percent(evaluations[-1].accuracy) if evaluations else "",
    }


def _content(run: Snapshot) -> dict[str, Any]:
    return {
        "title": run.about.label,
        "about": _about(run),
        "share_done": run.share_done,
        "tiles": _tiles(run),
        "longest": _longest(run),
        "reasons": [[text, f"{count:,}"] for text, count in run.totals.reasons.items()],
        "figures": {f.name: as_plotly(f) | {"title": f.title, "caption": f.caption} for f in figures(run)},
    }


def _about(run: Snapshot) -> str:
    about = run.about
    settings = [
        f"{key} {value.get('kind', value) if isinstance(value, dict) else value}"
        for key, value in about.strategy.items()
        if key != "name" and value is not None
    ]
    stop = ", ".join(f"{value:,.10g} {key.replace('_', ' ')}" for key, value in run.stop.items())
    return (
        f"{about.task}, {about.num_clients:,} clients, seed {about.seed}. "
        f"Strategy: {', '.join([about.strategy['name'], *settings])}. Stops at: {stop}."
    )


def _tiles(run: Snapshot) -> list[tuple[str, str, str]]:
    """Name, value, and details."""
    totals, wall, clock = run.totals, run.rates.wall, run.rates.clock
    last = totals.evaluations[-1] if totals.evaluations else EvaluationPoint(0, 0.0, 0, math.nan, math.nan)
    virtual = run.about.clock == "virtual"
    accepted = totals.outcomes[ACCEPTED]
    mean = totals.staleness.sum / accepted if accepted else 0.0
    of = "of the run" if run.written is None else "of the last minute"
    updates = f"{rate(clock.updates)} per virtual second" if virtual else of
    versions = f"{rate(clock.versions)} per virtual second" if virtual else of
    others = ", ".join(f"{count:,} {kind}" for kind, count in totals.outcomes.items() if count and kind != ACCEPTED)
    computed = f"computed in {duration(run.wall_seconds)}" if virtual else ""
    return [
        ("accuracy", percent(last.accuracy), f"best {percent(totals.best_accuracy)}"),
        ("loss", f"{last.loss:.3g}" if math.isfinite(last.loss) else "–", f"at version {last.version:,}"),
        ("updates per second", rate(wall.updates), updates),
        ("versions per second", rate(wall.versions), versions),
        ("updates", f"{run.accepted:,}", f"version {run.version:,}"),
        ("virtual time" if virtual else "time", duration(run.seconds), computed),
        ("training now", f"{run.in_flight:,}", f"of {run.about.concurrency:,} at a time"),
        ("staleness", number(mean), f"at most {totals.staleness.max:,.0f}"),
        ("refused or failed", f"{totals.arrivals - accepted:,}", others or "none"),
        ("received", size_in_bytes(totals.bytes_up), f"sent {size_in_bytes(totals.bytes_down)}"),
    ]


def _longest(run: Snapshot) -> list[dict[str, Any]]:
    """Those in flight for the longest: client, since, duration, versions behind; whether slow."""
    usual = usual_seconds(run)
    return [
        {
            "cells": (
                f"{flight.client}",
                moment(run, flight.started),
                duration(run.seconds - flight.started),
                f"{run.version - flight.base_version:,}",
            ),
            "slow": is_slow(run.seconds - flight.started, usual),
        }
        for flight in run.longest[:MOST_LONGEST]
    ]


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
