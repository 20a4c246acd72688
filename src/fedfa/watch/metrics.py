"""The runs below a folder in the text format that Prometheus reads (version 0.0.4)."""

import math
from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[str, dict[str, Any], float]
"""What is added to the name, labels, value."""

_HELP = {
    "fedfa_run_info": ("gauge", "Always 1; what the run is."),
    "fedfa_run_finished": ("gauge", "1 once the run has ended as it should, else 0."),
    "fedfa_run_news_timestamp_seconds": ("gauge", "When a run under way last told how it stands, in Unix time."),
    "fedfa_run_clock_seconds": (
        "gauge",
        "The run's own clock: virtual time of simulations, else time since its start.",
    ),
    "fedfa_run_done_ratio": ("gauge", "How much of the way to its nearest limit is behind, 0 to 1."),
    "fedfa_updates_total": ("counter", "Clients' answers by what became of them."),
    "fedfa_version": ("gauge", "Version of the global model."),
    "fedfa_accuracy": ("gauge", "Accuracy at the last evaluation, 0 to 1."),
    "fedfa_loss": ("gauge", "Loss at the last evaluation."),
    "fedfa_in_flight": ("gauge", "Clients that are training now."),
    "fedfa_in_flight_longest_seconds": (
        "gauge",
        "For how long the slowest of them has been training, by the run's clock.",
    ),
    "fedfa_staleness": ("summary", "Versions published while an accepted update was being computed."),
    "fedfa_bytes_total": ("counter", "Model bytes that travelled."),
}


def metrics(runs: dict[str, dict[str, Any]]) -> str:
    """All metrics of all runs; each run is told apart by its folder."""
    samples: dict[str, list[_Sample]] = {name: [] for name in _HELP}
    for run, state in runs.items():
        for name, (suffix, labels, value) in _samples(state):
            samples[name].append((suffix, {"run": run} | labels, value))
    lines: list[str] = []
    for name, found in samples.items():
        kind, meaning = _HELP[name]
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"] if found else []
        lines += [f"{name}{suffix}{{{_labels(labels)}}} {_number(value)}" for suffix, labels, value in found]
    return "\n".join(lines) + "\n"


def _samples(state: dict[str, Any]) -> Iterator[tuple[str, _Sample]]:
    yield "fedfa_run_finished", ("", {}, state["state"] == "finished")
    if "accepted" not in state:
        return
    about = {key: state[key] for key in ("label", "task", "seed", "clock")} | {"strategy": state["strategy"]["name"]}
    yield "fedfa_run_info", ("", about, 1)
    if "written" in state:
        yield "fedfa_run_news_timestamp_seconds", ("", {}, state["written"])
    yield "fedfa_run_clock_seconds", ("", {}, state["seconds"])
    yield "fedfa_run_done_ratio", ("", {}, state["share_done"])
    for outcome, count in state["outcomes"].items():
        yield "fedfa_updates_total", ("", {"outcome": outcome}, count)
    yield "fedfa_version", ("", {}, state["version"])
    for *_, accuracy, loss in state["evaluations"][-1:]:
        yield "fedfa_accuracy", ("", {}, accuracy)
        yield "fedfa_loss", ("", {}, loss)
    yield "fedfa_in_flight", ("", {}, state["in_flight"])
    for _, _, started, _ in state["longest"][:1]:
        yield "fedfa_in_flight_longest_seconds", ("", {}, state["seconds"] - started)
    yield "fedfa_staleness", ("_sum", {}, state["staleness"]["sum"])
    yield "fedfa_staleness", ("_count", {}, state["outcomes"]["accepted"])
    yield "fedfa_bytes_total", ("", {"direction": "received"}, state["bytes_up"])
    yield "fedfa_bytes_total", ("", {"direction": "sent"}, state["bytes_down"])


def _labels(labels: dict[str, Any]) -> str:
    def quoted(value: Any) -> str:
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return ",".join(f'{key}="{quoted(value)}"' for key, value in labels.items())


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
