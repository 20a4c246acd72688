"""What every strategy promises the engines: bad updates, state, slots, and numpy or torch alike."""

import copy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa import Arrival, replay
from fedfa.strategies.base import Flight, Strategy, Update
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.arrivals import arrival, close, small


def test_max_staleness_refuses() -> None:
    stream = [arrival(0, 0, 1), arrival(1, 0, 2), arrival(2, 0, 3)]
    models = replay(fedfa.FedAsync(beta=1.0, max_staleness=1), np.array([0.0], np.float32), stream)
    close(models, [[1], [1 - 0.5**0.5 * (1 - 2)], [1 - 0.5**0.5 * (1 - 2)]])
    assert "max_staleness" in models.refused[2]


def test_clip_norm_scales_the_difference() -> None:
    models = replay(fedfa.FedFaParam(window=1, clip_norm=5.0), np.array([1.0, 1.0], np.float32), [arrival(0, 0, 7, 9)])
    close(models, [[1 + 6 * 0.5, 1 + 8 * 0.5]])  # the difference (6, 8) has norm 10


@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
def test_buffers_are_averaged_never_differenced(cls: type[Strategy]) -> None:
    """A variance that is positive at every client stays positive, however stale and however large the step."""
    strategy = small(cls, server_lr=50.0)
    rng = np.random.default_rng(0)
    variances = rng.uniform(0.1, 2.0, 20)
    stream = [
        Arrival(client=i % 5, base_version=0, params=np.array([rng.normal(), variance], np.float32), num_steps=3)
        for i, variance in enumerate(variances)
    ]
    models = replay(strategy, np.array([0.0, 1.0], np.float32), stream, num_trainable=1)
    assert not models.refused
    assert all(0.1 - 1e-6 <= model[1] <= 2.0 + 1e-6 for model in models)


def snapshot(strategy: Strategy) -> dict[str, Any]:
    return copy.deepcopy(strategy.state_dict())


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b


BAD: dict[str, dict[str, Any]] = {
    "nothing in flight": {"client": 99},
    "repeat": {"dispatch": 3},
    "unknown base version": {"base_version": 7},
    "wrong shape": {"params": np.zeros(4, np.float32)},
    "wrong dtype": {"params": np.zeros(3, np.float64)},
    "not finite": {"params": np.array([0, np.nan, 0], np.float32)},
    "Inf": {"params": np.array([0, np.inf, 0], np.float32)},
    "no work done": {"num_examples": 0},
    "steps": {"num_steps": float("nan")},
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
def test_a_bad_update_changes_nothing_and_frees_its_slot(cls: type[Strategy], bad: str) -> None:
    strategy = small(cls)
    base = np.zeros(3, np.float32)
    strategy.begin(base)
    good = Update(1, 5, 0, np.ones(3, np.float32), base, 2, 1.0)
    strategy.receive(good, {1: Flight(5, 0)})
    before = snapshot(strategy)
    update = Update(2, 6, 0, np.ones(3, np.float32), base, 2, 1.0)._replace(**BAD[bad])
    in_flight = {2: Flight(6, update.base_version), 3: Flight(7, 0)}
    orders = strategy.receive(update, in_flight)
    assert bad in orders.refused
    assert (orders.start, orders.published, orders.recall) == (1, False, ())
    assert same(before, snapshot(strategy))


@pytest.mark.parametrize(
    "make", [partial(small, cls) for cls in STRATEGIES.values()], ids=[cls.name for cls in STRATEGIES.values()]
)
def test_state_survives_a_round_trip(make: Callable[[], Strategy]) -> None:
    rng = np.random.default_rng(1)
    results = rng.normal(size=(12, 3)).astype(np.float32)
    whole, first, second = make(), make(), make()
    base = np.zeros(3, np.float32)

    def feed(strategy: Strategy, numbers: range) -> None:
        for i in numbers:
            strategy.receive(Update(i % 4, i, 0, results[i], base, i + 1, 2.0), {i % 4: Flight(i, 0)})

    for strategy in (whole, first):
        strategy.begin(base)
    feed(whole, range(12))
    feed(first, range(5))
    second.load_state_dict(snapshot(first))
    feed(second, range(5, 12))
    assert same(snapshot(whole), snapshot(second))


@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
def test_every_slot_is_handed_out_again(cls: type[Strategy]) -> None:
    """Whatever arrives, is refused or is lost: in the long run every slot is handed out again."""
    strategy = small(cls)
    base = np.zeros(2, np.float32)
    flying = strategy.begin(base).start
    rng = np.random.default_rng(2)
    for i in range(60):
        in_flight = {c: Flight(i if c == 0 else 1000 + c, strategy.version) for c in range(flying)}
        update = Update(0, i, strategy.version, rng.normal(size=2).astype(np.float32), strategy.model, 1, 1.0)
        if i % 7 == 3:
            update = update._replace(params=np.full(2, np.nan, np.float32))
        orders = strategy.lost(0, in_flight) if i % 11 == 5 else strategy.receive(update, in_flight)
        flying += orders.start - 1
        assert 1 <= flying <= strategy.concurrency
    assert flying + strategy.owed == strategy.concurrency


def test_strategies_do_not_import_torch_or_flower() -> None:
    code = "import fedfa.strategies, sys; print([m for m in ('torch', 'flwr') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_same_rules_run_on_torch_tensors() -> None:
    for cls in STRATEGIES.values():
        on_numpy, on_torch = small(cls), small(cls)
        start = np.array([1.0, 2.0], np.float32)
        on_numpy.begin(start)
        on_torch.begin(torch.from_numpy(start.copy()))
        for i in range(6):
            result = np.array([i, -i], np.float32)
            flight = {i: Flight(i, 0)}
            on_numpy.receive(Update(i, i, 0, result, start, 1, 2.0), flight)
            tensors = torch.from_numpy(result), torch.from_numpy(start)
            orders = on_torch.receive(Update(i, i, 0, *tensors, 1, 2.0), flight)
            assert not orders.refused
        np.testing.assert_allclose(on_torch.model.numpy(), on_numpy.model, rtol=1e-6)
