"""Metrics for Prometheus."""

import re
from pathlib import Path

from fedfa.runs.store import read_run
from fedfa.watch import Watch
from tests.helpers.watched import TOKEN, ask


def test_metrics_are_what_prometheus_reads(watch: Watch, watched_folder: Path) -> None:
    _, headers, text = ask(watch, f"/{TOKEN}/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    types: dict[str, str] = {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in types, "all samples of a metric stand together"
                types[name] = rest
            continue
        sample = re.fullmatch(r'([a-z_]+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)', line)
        assert sample, line
        assert sample[1].removesuffix("_sum").removesuffix("_count") in types
        assert f"{sample[1]}{{{sample[2]}}}" not in found
        found[f"{sample[1]}{{{sample[2]}}}"] = float(sample[3])
    assert text.endswith("\n")
    run = read_run(watched_folder / "finished")
    assert types["fedfa_updates_total"] == "counter"
    assert found['fedfa_updates_total{run="finished",outcome="accepted"}'] == 60
    assert found['fedfa_updates_total{run="finished",outcome="lost"}'] == len(run.updates) - 60
    assert found['fedfa_accuracy{run="finished"}'] == run.final_accuracy
    assert found['fedfa_staleness_sum{run="finished"}'] == run.accepted["staleness"].sum()
    assert found['fedfa_bytes_total{run="finished",direction="received"}'] == run.updates["bytes_up"].sum()
    assert found['fedfa_run_finished{run="killed"}'] == 0
    assert [key for key in found if 'label="a \\"label\\"\\n<b>"' in key]
