"""The constants of the bound, measured on runs whose constants are known."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa.analysis import theory
from fedfa.analysis.estimates import Estimate, assumptions, estimate, spaced, step_of
from fedfa.analysis.gradients import measure
from fedfa.experiments.config import from_table
from fedfa.report.bound import words
from fedfa.runs.store import find_run
from tests.helpers import quadratics
from tests.helpers.quadratics import (
    BATCH,
    CENTRES,
    CLIENTS,
    CURVATURE,
    EXAMPLES,
    POINTS,
    START,
    bowl,
    six_dimensions,
    squared,
)


def bowl_run(folder: Path, updates: int = 200, **strategy: Any) -> Estimate:
    table = {
        "task": f"{quadratics.__name__}:bowl",
        "strategy": {"concurrency": 10} | strategy,
        "stop": {"updates": updates},
        "engine": {"executor": "inline"},
    }
    from_table(table).run(folder)
    return estimate(find_run(folder), models=6)


@pytest.mark.parametrize(
    ("strategy", "server_lr", "weight", "waits"),
    [
        ({"name": "fedfa-param"}, 1.0, 1.0, 4),
        ({"name": "fedfa-delta"}, 0.1, 0.1, 4),
        ({"name": "fedfa-agree"}, 2.0, 2.0, 4),
        ({"name": "fedbuff"}, 1.0, 0.2, 0),
    ],
)
def test_measured_constants_are_the_known_ones(
    strategy: dict[str, str], server_lr: float, weight: float, waits: int, tmp_path: Path
) -> None:
    found = bowl_run(tmp_path / "run", **strategy)
    s, best, known = found.setting, CENTRES.mean(0), six_dimensions(0.1)
    assert 0.9 < s.smoothness < 1.001
    assert s.global_variance == pytest.approx(np.mean(np.sum(known.gradients(best) ** 2, 1)), rel=1e-4)
    assert s.gradient_bound == pytest.approx(np.max(np.sum(known.gradients(START) ** 2, 1)), rel=1e-4)
    gap = known.value(START) - known.value(best)
    assert s.gap == pytest.approx(gap, rel=0.03)
    assert s.gap <= gap + 1e-6
    assert not found.constants.least_is_known
    assert found.constants.norms[0] == pytest.approx(squared(known.gradients(START).mean(0)), rel=1e-4)
    per_point = np.sum((CURVATURE * (POINTS - CENTRES[:, None])) ** 2) / (EXAMPLES - 1) / CLIENTS
    assert s.local_variance == pytest.approx(per_point / BATCH * (1 - BATCH / EXAMPLES), rel=0.3)
    assert (s.local_steps, s.local_lr, s.server_lr) == (4, 0.1, server_lr)
    assert (found.weight, found.window, found.concurrency) == (weight, 5, 10)
    assert s.max_staleness == found.staleness + 1 + waits
    assert found.versions[0] == 0
    assert found.versions[-1] == s.updates
    assert len(found.versions) == 6
    assert found.settled
    assert found.apart == 0
    assert found.mean_norm <= theory.theorem1(s).total
    lines = [line for line in words(found) if not line.startswith("Assumed:")]
    assert "The theorem's step condition holds. Its bound, as printed, is" in lines[0]
    assert (
        ("Steps from the bases, on a quadratic, are steady" in lines[1])
        is (f"is below 2: now 2 times {theory.reach(s):.3g}" in lines[1])
        is (server_lr > 1)
    )


def test_a_diverged_run_is_reported_as_diverged(tmp_path: Path) -> None:
    grown = bowl_run(tmp_path / "run", name="fedfa-delta", server_lr=2.0)
    assert not grown.settled
    assert "The run did not settle: f went from" in words(grown)[0]
    norms = (*grown.constants.norms[:-1], math.nan)
    broken = replace(grown, constants=replace(grown.constants, norms=norms))
    assert words(broken)[0].startswith("The run diverged: gradients are not finite at 1 of 6 models, first at version")
    assert broken.summary()["mean_squared_gradient"] is None
    task = bowl(0)
    initial = task.initial(0)[0]
    constants = measure(task, [initial, initial * np.float32("nan")], seed=0)
    assert not constants.finite
    assert 0.9 < constants.smoothness < 1.001
    with pytest.raises(fedfa.ConfigError, match="no model of the run has finite gradients"):
        measure(task, [initial * np.float32("nan")], seed=0)


def test_strategies_that_the_theorem_does_not_cover_are_refused() -> None:
    sgd = fedfa.LocalTraining()
    for strategy in (fedfa.FedAvg(), fedfa.FedAsync(), fedfa.Port()):
        with pytest.raises(fedfa.ConfigError, match="Theorem 1 does not speak about it; give a run of fedfa-param"):
            step_of(strategy)
    with pytest.raises(fedfa.ConfigError, match=r"Theorem 1 speaks about SGD; give a run with local.optimizer = 'sgd'"):
        assumptions(fedfa.FedFaParam(), fedfa.LocalTraining(optimizer="adamw"))
    assert assumptions(fedfa.FedFaParam(), sgd) == assumptions(fedfa.FedBuff(staleness="constant"), sgd) == ()
    unusual = fedfa.FedFaNova(weighting="examples", staleness=fedfa.PolynomialStaleness(), clip_norm=1.0)
    assert len(assumptions(unusual, fedfa.LocalTraining(momentum=0.9))) == 5
    assert "proximal" in assumptions(fedfa.FedFaProx(), sgd)[0]
    assert assumptions(fedfa.FedFaAgree(), sgd) == ("steps as long as clients agree, all taken as the longest",)
    assert step_of(fedfa.FedFaAgree(window=7), [1.0, 1.3, 1.1]) == (1.3, 1.3, 7)
    assert step_of(fedfa.FedFaAgree(server_lr=1.5), [1.0]) == (1.5, 1.5, 5)


def test_runs_that_cannot_be_measured_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fedfa.ConfigError, match="nowhere: no such folder; give one that 'fedfa run' wrote"):
        find_run(tmp_path / "nowhere")
    with pytest.raises(fedfa.RecordError, match="holds no finished run; give a folder"):
        find_run(tmp_path)
    task = bowl(0)
    for seed in (0, 1):
        fedfa.simulate(
            "fedfa-param",
            task,
            stop={"updates": 20},
            seed=seed,
            engine={"executor": "inline"},
            out=tmp_path / f"s{seed}",
        )
    with pytest.raises(fedfa.RecordError, match=r"is no run, but holds 2; give one of them: .*s0, .*s1$"):
        find_run(tmp_path)
    with pytest.raises(fedfa.RecordError, match=r"has no config.toml to run it again from; make the run with"):
        estimate(find_run(tmp_path / "s0"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "checkpoint.npz").touch()
    with pytest.raises(fedfa.RecordError, match="holds an unfinished run; continue it with"):
        find_run(tmp_path / "open")
    bowl_run(tmp_path / "run", updates=60, name="fedfa-param")
    some = estimate(find_run(tmp_path / "run"), models=3, updates=55)
    assert some.setting.updates == 51
    assert some.versions == (0, 16, 46)
    with pytest.raises(fedfa.ConfigError, match="models = 1: must be at least 2"):
        estimate(find_run(tmp_path / "run"), models=1)
    with pytest.raises(fedfa.ConfigError, match="fewer than 2 models were evaluated"):
        estimate(find_run(tmp_path / "run"), updates=3)
    changed = r"run again, it has other events; its data, its code or a version has changed: run it anew with"
    with monkeypatch.context() as change:
        change.setattr(quadratics, "POINTS", POINTS * 1.01)
        with pytest.raises(fedfa.RecordError, match=changed):
            estimate(find_run(tmp_path / "run"))
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    with pytest.raises(fedfa.RecordError, match=changed):
        estimate(find_run(tmp_path / "run"))


def test_models_are_taken_at_even_distances() -> None:
    assert spaced(5, 12) == [0, 1, 2, 3, 4]
    assert spaced(101, 3) == [0, 50, 100]
