"""Custom strategies: how they run, and which mistakes in them are named."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import fedfa
from fedfa import Stop
from fedfa.runs.store import read_run
from fedfa.strategies.base import Flight, Strategy, Update
from tests.helpers.simulations import Mine, StopAfter, quick


def test_a_custom_strategy_runs_and_is_recorded(task: fedfa.Task, tmp_path: Path) -> None:
    run = quick(Mine(concurrency=4), task, out=tmp_path / "mine", stop=Stop(updates=120))
    assert run.best_accuracy > 0.4
    assert read_run(tmp_path / "mine").manifest["strategy"] == {
        "name": "mine", "concurrency": 4, "max_staleness": None, "clip_norm": None, "rate": 0.5,
    }  # fmt: skip


def returning(change: Any) -> Strategy:
    @dataclass(kw_only=True, eq=False)
    class Own(Strategy):
        def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
            return change(self, update)

    return Own(concurrency=3)


def test_a_step_with_moved_leaves_buffers_alone() -> None:
    """BatchNorm statistics have no difference: added, they would grow without end."""
    start = np.array([1.0, 2.0, 5.0], np.float32)  # two parameters and a buffer
    strategy = returning(lambda s, u: s.moved(s.delta(u), 0.5))
    strategy.begin(start, num_trainable=2)
    update = Update(0, 0, 0, np.array([3.0, 2.0, 7.0], np.float32), start, 1, 1.0)
    assert strategy.receive(update, {0: Flight(0, 0)}).published
    assert strategy.model.tolist() == [2.0, 2.0, 7.0]


def in_place(strategy: Strategy, update: Update) -> Any:
    strategy.model += 0.1 * strategy.delta(update)
    return strategy.model


def test_a_strategy_that_returns_a_wrong_model_is_named(task: fedfa.Task) -> None:
    for change in (lambda s, u: s.model[:-1], in_place, lambda s, u: s.model.tolist()):
        with pytest.raises(fedfa.EngineError, match=r"Own\.aggregate must return a new model of shape"):
            quick(returning(change), task)
    wide = quick(returning(lambda s, u: s.model + np.float64(0.1) * s.delta(u).astype(np.float64)), task)
    assert wide.model.dtype == np.float32
    assert wide.label == "Own"


def test_state_that_a_checkpoint_would_lose_is_refused() -> None:
    @dataclass(kw_only=True, eq=False)
    class Forgetful(Mine):
        def reset(self) -> None:
            self.seen = 0

    with pytest.raises(fedfa.ConfigError, match=r"Forgetful\.seen: declare it with field\(init=False\)"):
        Forgetful().begin(np.zeros(2, np.float32))

    @dataclass(kw_only=True, eq=False)
    class Queueing(Mine):
        last: Any = field(init=False)

        def reset(self) -> None:
            self.last = {"of": [deque([1.0])]}

    with pytest.raises(fedfa.ConfigError, match=r"Queueing\.last: a checkpoint cannot hold a deque; use numbers"):
        Queueing().begin(np.zeros(2, np.float32))


def test_plain_state_of_every_kind_is_kept(task: fedfa.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(
        "fedfa.simulation.engine.time.perf_counter", lambda: float(next(ticks))
    )  # every arrival is a chance

    @dataclass(kw_only=True, eq=False)
    class Remembering(Mine):
        seen: set[int] = field(init=False)
        norms: dict[int, Any] = field(init=False)

        def reset(self) -> None:
            self.seen, self.norms = set(), {}

        def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
            fresh = update.client not in self.seen
            self.seen.add(update.client)
            self.norms[update.client] = [self.norm, self.delta(update)]
            return self.model + (0.5 if fresh else 0.1) * self.norms[update.client][1]

    whole = quick(Remembering(concurrency=4), task, stop=Stop(updates=40))
    with pytest.raises(KeyboardInterrupt):
        quick(Remembering(concurrency=4), task, stop=Stop(updates=40), out=tmp_path, interrupted=StopAfter(15))
    again = quick(Remembering(concurrency=4), task, stop=Stop(updates=40), out=tmp_path, resume=True)
    assert_frame_equal(again.updates, whole.updates, check_exact=True)
    assert again.model.tobytes() == whole.model.tobytes()
