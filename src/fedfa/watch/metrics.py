"""The runs below a folder in the text format that Prometheus reads (version 0.0.4)."""

import math
from collections.abc import Iterator
from typing import Any

from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.snapshot import Snapshot
from fedfa.watch.runs import Seen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[str, dict[str, Any], float]
"""The suffix of the name, labels, value."""

_HELP = {
    "fedfa_run_info": ("gauge", "Always 1; what the run is."),
    "fedfa_run_finished": ("gauge", "1 if the run has finished normally, else 0."),
    "fedfa_run_news_timestamp_seconds": ("gauge", "Unix time of the last news from a run in progress."),
    "fedfa_run_clock_seconds": (
        "gauge",
        "The run's own clock: virtual time of simulations, else time since its start.",
    ),
    "fedfa_run_done_ratio": ("gauge", "Progress to the run's nearest limit, 0 to 1."),
    "fedfa_updates_total": ("counter", "Clients' answers by outcome."),
    "fedfa_version": ("gauge", "Version of the global model."),
    "fedfa_accuracy": ("gauge", "Accuracy at the last evaluation, 0 to 1."),
    "fedfa_loss": ("gauge", "Loss at the last evaluation."),
    "fedfa_in_flight": ("gauge", "Clients that are training now."),
    "fedfa_in_flight_longest_seconds": (
        "gauge",
        "How long the slowest of them has been training, by the run's clock.",
    ),
    "fedfa_staleness": ("summary", "Versions published while an accepted update was being computed."),
    "fedfa_bytes_total": ("counter", "Model bytes sent, by direction."),
}


def metrics(runs: dict[str, Seen]) -> str:
    """All metrics of all runs; the folder identifies each run."""
    samples: dict[str, list[_Sample]] = {name: [] for name in _HELP}
    for name, run in runs.items():
        samples["fedfa_run_finished"].append(("", {"run": name}, run.state == "finished"))
        for metric, (suffix, labels, value) in _samples(run.snapshot) if run.snapshot else ():
            samples[metric].append((suffix, {"run": name} | labels, value))
    lines: list[str] = []
    for name, found in samples.items():
        kind, meaning = _HELP[name]
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"] if found else []
        lines += [f"{name}{suffix}{{{_labels(labels)}}} {_number(value)}" for suffix, labels, value in found]
    return "\n".join(lines) + "\n"


def _samples(run: Snapshot) -> Iterator[tuple[str, _Sample]]:
    about, totals = run.about, run.totals
    info = {"label": about.label, "task": about.task, "seed": about.seed, "clock": about.clock}
    yield "fedfa_run_info", ("", info | {"strategy": about.strategy["name"]}, 1)
    if run.written is not None:
        yield "fedfa_run_news_timestamp_seconds", ("", {}, run.written)
    yield "fedfa_run_clock_seconds", ("", {}, run.seconds)
    yield "fedfa_run_done_ratio", ("", {}, run.share_done)
    for outcome, count in totals.outcomes.items():
        yield "fedfa_updates_total", ("", {"outcome": outcome}, count)
    yield "fedfa_version", ("", {}, run.version)
    for last in totals.evaluations[-1:]:
        yield "fedfa_accuracy", ("", {}, last.accuracy)
        yield "fedfa_loss", ("", {}, last.loss)
    yield "fedfa_in_flight", ("", {}, run.in_flight)
    for first in run.longest[:1]:
        yield "fedfa_in_flight_longest_seconds", ("", {}, run.seconds - first.started)
    yield "fedfa_staleness", ("_sum", {}, totals.staleness.sum)
    yield "fedfa_staleness", ("_count", {}, totals.outcomes[ACCEPTED])
    yield "fedfa_bytes_total", ("", {"direction": "received"}, totals.bytes_up)
    yield "fedfa_bytes_total", ("", {"direction": "sent"}, totals.bytes_down)


def _labels(labels: dict[str, Any]) -> str:
    def quoted(value: Any) -> str:
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return ",".join(f'{key}="{quoted(value)}"' for key, value in labels.items())


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
