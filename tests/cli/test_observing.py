"""``fedfa theory``."""

from pathlib import Path

import pytest

from fedfa.runs.store import find_run
from tests.helpers.commands import QUICK, call, last_json


def test_theory_of_a_run(tmp_path: Path) -> None:
    words = ["--set", "stop.updates=60", "--set", "strategy.name=fedfa-delta", "--set", "engine.executor=inline"]
    call("run", *words, *QUICK, "--set", "strategy.name=fedfa-agree", "--out", "adapted", cwd=tmp_path)
    adapted = call("theory", "adapted", "--models", "2", "--json", cwd=tmp_path)
    longest = find_run(tmp_path / "adapted").evaluations["step"].drop_nans().max()
    assert last_json(adapted)["server_lr"] == longest > 1
    assert "Assumed: steps as long as clients agree, all taken as the longest." in adapted.stdout
    call("run", *words, *QUICK, "--set", "strategy.name=fedasync", "--out", "mixed", cwd=tmp_path)
    refused = call("theory", "mixed", cwd=tmp_path, ok=2).stderr
    assert "fedasync: Theorem 1 does not speak about it; give a run of fedfa-param, fedfa-delta, fedfa-prox" in refused
    call("run", *words, *QUICK, cwd=tmp_path)
    done = call("theory", "runs/digits", "--models", "4", "--json", cwd=tmp_path)
    found = last_json(done)
    assert len(found["models"]) == 4
    assert found["bound"]["total"] >= found["mean_squared_gradient"] > 0
    assert found["server_lr"] == 0.25
    assert found["gap"] == pytest.approx(2.3, abs=0.2)
    assert found["local_variance"] > 0
    assert "condition" in done.stdout
    assert "One generation of clients (M_c = 4)" in done.stdout
    assert done.stderr == ""
    wrong = call("theory", "nowhere", cwd=tmp_path, ok=2)
    assert wrong.stderr == "fedfa: nowhere: no such folder; give one that 'fedfa run' wrote\n"
