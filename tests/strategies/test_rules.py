"""Each rule against numbers worked out in the test, a contract for all of them, and identities between them."""

import copy
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedfa
from fedfa import Arrival, replay
from fedfa.strategies.base import Flight, Strategy, Update
from fedfa.strategies.conformance import cases, replay_case
from fedfa.strategies.registry import STRATEGIES
from fedfa.strategies.specs import strategy_class
from fedfa.strategies.vectors import Summand, Window, blend
from tests.helpers.reference import reference_replay


def arrival(client: int, base: int, *params: float, n: int = 1, steps: float = 1) -> Arrival:
    values = np.array(params, np.float32)
    return Arrival(client=client, base_version=base, params=values, num_examples=n, num_steps=steps)


def small(cls: type[Strategy], **settings: Any) -> Strategy:
    """The strategy at a size that publishes within a few arrivals."""
    names = {f.name for f in fields(cls)}
    sizes = {"concurrency": 3, "window": 2, "buffer": 2}
    return cls(**{key: value for key, value in (sizes | settings).items() if key in names})


def close(models: list[np.ndarray], expected: list[list[float]], atol: float = 1e-6) -> None:
    np.testing.assert_allclose(np.array(models), np.array(expected), atol=atol)


EXAMPLES = Path(__file__).parents[2] / "examples"


# The rules -----------------------------------------------------------------------------------------------------------


def test_fedavg_waits_for_all_and_weighs_by_examples() -> None:
    models = replay(
        fedfa.FedAvg(concurrency=2), np.zeros(2, np.float32), [arrival(0, 0, 1, 2, n=1), arrival(1, 0, 5, 6, n=3)]
    )
    close(models, [[0, 0], [(1 * 1 + 3 * 5) / 4, (1 * 2 + 3 * 6) / 4]])


def test_fednova_averages_differences_per_step() -> None:
    models = replay(
        fedfa.FedNova(concurrency=2),
        np.array([1.0], np.float32),
        [arrival(0, 0, 3, n=1, steps=2), arrival(1, 0, 7, n=1, steps=6)],
    )
    # p = 1/2 each; mean steps 4; per step: 2/2 and 6/6
    close(models, [[1], [1 + 4 * (0.5 * 1 + 0.5 * 1)]])


def test_fedasync_mixes_by_staleness_without_changing_beta() -> None:
    strategy = fedfa.FedAsync(beta=0.5, staleness=fedfa.PolynomialStaleness(a=1.0))
    models = replay(strategy, np.array([0.0], np.float32), [arrival(0, 0, 4), arrival(1, 0, 6), arrival(2, 2, 6)])
    first = 0.5 * 4
    second = (1 - 0.25) * first + 0.25 * 6  # tau = 1: b = 0.5 / 2
    third = 0.5 * second + 0.5 * 6  # tau = 0 again: the full beta
    close(models, [[first], [second], [third]])
    assert strategy.beta == 0.5


@pytest.mark.parametrize(("tau", "weight"), [(0, 1.0), (4, 1.0), (5, 1 / 11), (6, 1 / 21)])
def test_hinge(tau: int, weight: float) -> None:
    assert fedfa.HingeStaleness(a=10, b=4)(tau) == pytest.approx(weight)


def test_fedbuff_steps_along_the_mean_difference() -> None:
    strategy = fedfa.FedBuff(concurrency=4, buffer=2, server_lr=0.5, staleness=fedfa.PolynomialStaleness(a=1.0))
    models = replay(
        strategy,
        np.array([10.0], np.float32),
        [arrival(0, 0, 12), arrival(1, 0, 14), arrival(2, 0, 16), arrival(3, 1, 20)],
    )
    first = 10 + 0.5 * (2 + 4) / 2
    second = first + 0.5 * (0.5 * (16 - 10) + (20 - first)) / 2  # the stale one counts half, against its own base
    close(models, [[10], [first], [first], [second]])


def test_fedbuff_origin_current_is_the_mean_of_models() -> None:
    strategy = fedfa.FedBuff(concurrency=4, buffer=2, origin="current", staleness="constant")
    models = replay(
        strategy,
        np.array([10.0], np.float32),
        [arrival(0, 0, 12), arrival(1, 0, 14), arrival(2, 0, 16), arrival(3, 1, 20)],
    )
    close(models, [[10], [13], [13], [18]])


def test_port_weighs_by_examples_freshness_and_agreement() -> None:
    strategy = fedfa.Port(concurrency=4, buffer=2, staleness_bound=2)
    stream = [
        arrival(0, 0, 1, 0, n=1),
        arrival(1, 0, 1, 0, n=1),
        arrival(2, 0, 0, 2, n=3),  # tau 1, D = (0, 2), drift = (1, 0): cos 0
        arrival(3, 1, 1, 1, n=1),  # tau 0: cos 1, D = (0, 1)
    ]
    models = replay(strategy, np.zeros(2, np.float32), stream)
    stale, fresh = 3 * ((0 + 1) / 2 + 2 / 3), 1 * (1 + 1)
    second = np.array([1, 0]) + (stale * np.array([0, 2]) + fresh * np.array([0, 1])) / (stale + fresh)
    close(models, [[0, 0], [1, 0], [1, 0], second.tolist()])


def test_fedfa_param_is_the_mean_of_the_last_k_models() -> None:
    models = replay(
        fedfa.FedFaParam(window=3),
        np.array([9.0], np.float32),
        [arrival(i, 0, value) for i, value in enumerate([1, 2, 6, 10])],
    )
    close(models, [[9], [9], [3], [6]])
    assert models.versions == [0, 0, 1, 2]  # the K-th arrival publishes version 1, not before


def test_fedfa_delta_steps_along_the_mean_of_the_last_k_differences() -> None:
    strategy = fedfa.FedFaDelta(window=2, server_lr=0.5)
    models = replay(
        strategy, np.array([1.0], np.float32), [arrival(0, 0, 2), arrival(1, 0, 4), arrival(2, 0, 6), arrival(3, 2, 3)]
    )
    one = 1 + 0.5 * (1 + 3) / 2
    two = one + 0.5 * (3 + 5) / 2
    three = two + 0.5 * (5 + (3 - two)) / 2
    close(models, [[1], [one], [two], [three]])


def test_fedbuff_is_by_default_what_its_authors_define() -> None:
    buff = fedfa.FedBuff()
    assert (buff.origin, buff.refill_policy, buff.staleness, buff.weighting) == (
        "base", "immediate", fedfa.PolynomialStaleness(a=0.5), "uniform",
    )  # fmt: skip
    models = replay(
        fedfa.FedBuff(buffer=1), np.array([0.0], np.float32), [arrival(0, 0, 1), arrival(1, 0, 3), arrival(2, 0, 5)]
    )
    close(models, [[1], [1 + 3 / 2**0.5], [1 + 3 / 2**0.5 + 5 / 3**0.5]])


def test_fedfa_delta_takes_one_over_concurrency() -> None:
    stream = [arrival(0, 0, 3), arrival(1, 0, 5)]
    start = np.array([1.0], np.float32)
    close(replay(fedfa.FedFaDelta(window=2, concurrency=10), start, stream), [[1], [1 + 0.1 * 3]])


def test_fedfa_agree_may_take_a_given_step_from_the_mean_of_the_bases() -> None:
    stream = [arrival(0, 0, 3), arrival(1, 0, 5), arrival(2, 1, 9)]
    one = 1 + 1.5 * (2 + 4) / 2
    two = (1 + one) / 2 + 1.5 * (4 + (9 - one)) / 2
    rule = fedfa.FedFaAgree(window=2, concurrency=10, server_lr=1.5)
    close(replay(rule, np.array([1.0], np.float32), stream), [[1], [one], [two]])


@pytest.mark.parametrize(
    ("differences", "step"),
    [
        ([[1, 1, 0, 0]] * 4, 2.0),  # all the same: all of the mean is common
        ([[2, 1, 0, 0], [2, -1, 0, 0], [2, 0, 1, 0], [2, 0, -1, 0]], 2.0),
        (np.eye(4) + (6.4**0.5 - 2) / 8, 1.5),  # any two have a product of 0.15, and their mean is as long as 0.4
        (np.eye(4), 1.0),  # at right angles: nothing is
        ([[1, 0, 0, 0], [-1, 0, 0, 0]] * 2, 1.0),
        ([[0, 0, 0, 0]] * 4, 1.0),
    ],
)
def test_fedfa_agree_steps_as_far_as_clients_agree(differences: Any, step: float) -> None:
    """Not from a single window, from which nothing can be told."""
    start = np.array([5.0, 6.0, 7.0, 8.0], np.float32)
    stream = [arrival(client, 0, *(start + row)) for client, row in enumerate(differences)]
    models = replay(fedfa.FedFaAgree(window=4, concurrency=3), start, [*stream, *stream])
    mean = np.mean(differences, axis=0)
    close(models[3:], [start + mean] + [start + step * mean] * 4, atol=1e-5)


def test_where_clients_do_not_agree_fedfa_agree_is_fedfa_param_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    agree, param = fedfa.FedFaAgree(window=3, concurrency=10), fedfa.FedFaParam(window=3, concurrency=10)
    versions = [rng.normal(size=400).astype(np.float32)]
    for rule in (agree, param):
        rule.begin(versions[0], num_trainable=390)
    for i in range(60):
        base = max(0, len(versions) - 1 - int(rng.integers(0, 4)))
        update = Update(i, i, base, versions[base] + rng.normal(size=400).astype(np.float32), versions[base], 1, 1.0)
        for rule in (agree, param):
            rule.receive(update, {i: Flight(i, base)})
        assert np.array_equal(agree.model, param.model)
        versions += [agree.model] if agree.version == len(versions) else []
    assert len(versions) == 59


def test_one_difference_alone_agrees_with_nobody() -> None:
    stream = random_stream(20, 1)
    rules = fedfa.FedFaAgree(window=1), fedfa.FedFaParam(window=1)
    assert np.array_equal(*(np.array(replay(rule, START, stream)) for rule in rules))


def steps_along(rule: fedfa.FedFaAgree, models: Any) -> list[float]:
    """The step after each arrival, when all start from zero."""
    start, steps = np.zeros(64, np.float32), []
    rule.begin(start)
    for i, params in enumerate(models):
        rule.receive(Update(i, i, 0, params.astype(np.float32), start, 1, 1.0), {i: Flight(i, 0)})
        steps.append(rule.step())
    return steps


def test_the_agreement_outlives_single_windows() -> None:
    """Eight arrivals that agree, then many that do not: the step comes down over M_c arrivals and more, not at once."""
    stream = [np.ones(64) if i < 8 else 8 * np.eye(64)[i % 64] for i in range(120)]
    steps = steps_along(fedfa.FedFaAgree(window=4, concurrency=8), stream)
    assert steps[:9] == [1.0] * 4 + [2.0] * 5
    assert any(1.0 < step < 2.0 for step in steps[9:70])
    assert steps[70:] == [1.0] * 50


@pytest.mark.parametrize("window", [2, 5])
def test_what_clients_agree_on_by_chance_does_not_count(window: int) -> None:
    """Opposed clients at random, as with two labels: windows agree again and again, and the step stays with 1."""
    rng = np.random.default_rng(0)
    opposed = rng.choice([-1.0, 1.0], size=(400, 1)) * np.ones(64) + 0.3 * rng.normal(size=(400, 64))
    by_chance, in_common = (
        np.mean(steps_along(fedfa.FedFaAgree(window=window, concurrency=5), models))
        for models in (opposed, opposed + 1)
    )
    assert by_chance < 1.1
    assert in_common > 1.3


def test_the_example_of_an_adaptive_step() -> None:
    """Differences at right angles are extrapolated by K / 2, equal ones not at all; equal to zero they do no harm."""
    adaptive = strategy_class(f"{EXAMPLES / 'adaptive_step.py'}:FedFaExP", "strategy")
    start = np.zeros(4, np.float32)
    right_angles = [arrival(client, 0, *row) for client, row in enumerate(np.eye(4))]
    close(replay(adaptive(window=4), start, right_angles)[-1:], [[4 / 2 / 4] * 4])
    close(replay(adaptive(window=2), start, [arrival(0, 0, 1, 2, 3, 4)] * 2), [[0] * 4, [1, 2, 3, 4]])
    close(replay(adaptive(window=2), start, [arrival(0, 0, 0, 0, 0, 0)] * 2), [[0] * 4, [0] * 4])
    assert fedfa.simulate(adaptive(concurrency=10), stop={"updates": 300}).best_accuracy > 0.7


def test_fedfa_nova_rescales_by_the_mean_steps_of_the_window() -> None:
    models = replay(
        fedfa.FedFaNova(window=2, server_lr=1.0),
        np.array([0.0], np.float32),
        [arrival(0, 0, 4, steps=2), arrival(1, 0, 9, steps=3)],
    )
    close(models, [[0], [2.5 * (4 / 2 + 9 / 3) / 2]])


def test_prox_strategies_tell_clients_how_hard_to_pull() -> None:
    assert fedfa.FedProx(prox_mu=0.3).local.prox_mu == 0.3
    assert fedfa.FedFaProx(prox_mu=0.2).local.prox_mu == 0.2
    assert fedfa.FedFaAgree(prox_mu=0.2).local.prox_mu == 0.2
    assert fedfa.FedFaDelta().local.prox_mu == fedfa.FedFaAgree().local.prox_mu == 0.0


def test_one_slot_per_client_replaces_the_older_entry() -> None:
    stream = [arrival(7, 0, 1), arrival(7, 0, 3), arrival(8, 0, 5), arrival(7, 0, 7)]
    start = np.array([0.0], np.float32)
    close(replay(fedfa.FedFaParam(window=2), start, stream), [[0], [2], [4], [6]])
    close(replay(fedfa.FedFaParam(window=2, one_slot_per_client=True), start, stream), [[0], [0], [4], [6]])


def test_clip_norm_scales_the_difference() -> None:
    models = replay(fedfa.FedFaParam(window=1, clip_norm=5.0), np.array([1.0, 1.0], np.float32), [arrival(0, 0, 7, 9)])
    close(models, [[1 + 6 * 0.5, 1 + 8 * 0.5]])  # the difference (6, 8) has norm 10


def test_max_staleness_refuses() -> None:
    stream = [arrival(0, 0, 1), arrival(1, 0, 2), arrival(2, 0, 3)]
    models = replay(fedfa.FedAsync(beta=1.0, max_staleness=1), np.array([0.0], np.float32), stream)
    close(models, [[1], [1 - 0.5**0.5 * (1 - 2)], [1 - 0.5**0.5 * (1 - 2)]])
    assert "max_staleness" in models.refused[2]


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


# The contract --------------------------------------------------------------------------------------------------------

finite = st.floats(-100, 100, width=32)


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[int, int, list[float], int, int]]:
    """Clients, how far back the base lies, results, examples and steps."""
    one = st.tuples(
        st.integers(0, 5),
        st.integers(0, 4),
        st.lists(finite, min_size=3, max_size=3),
        st.integers(1, 50),
        st.integers(1, 9),
    )
    return draw(st.lists(one, min_size=1, max_size=25))


def stream_for(
    strategy: Strategy, raw: list[tuple[int, int, list[float], int, int]], start: np.ndarray
) -> list[Arrival]:
    """Bases that exist by the time of the arrival."""
    made: list[Arrival] = []
    for client, back, values, examples, steps in raw:
        versions = replay(strategy, start, made).versions
        base = max(0, (versions[-1] if versions else 0) - back)
        made.append(
            Arrival(
                client=client,
                base_version=base,
                params=np.array(values, np.float32),
                num_examples=examples,
                num_steps=steps,
            )
        )
    return made


@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
@settings(max_examples=15, deadline=None)
@given(raw=streams())
def test_any_stream_gives_what_the_naive_rule_gives(cls: type[Strategy], raw: Any) -> None:
    strategy = small(cls)
    start = np.array([0.5, -1.0, 2.0], np.float32)
    stream = stream_for(strategy, raw, start)
    models = replay(strategy, start, stream)
    plain = [
        {
            "client": a.client,
            "base_version": a.base_version,
            "params": a.params.tolist(),
            "num_examples": a.num_examples,
            "num_steps": a.num_steps,
        }
        for a in stream
    ]
    sizes = {"concurrency": 3, "window": 2, "buffer": 2}
    parameters = {key: value for key, value in sizes.items() if key in {f.name for f in fields(cls)}}
    expected = reference_replay(cls.name, parameters, start.tolist(), plain, 3)
    np.testing.assert_allclose(np.array(models), np.array(expected), rtol=1e-4, atol=2e-3)
    assert np.isfinite(np.array(models)).all()
    assert all(0 <= later - earlier <= 1 for earlier, later in zip(models.versions, models.versions[1:], strict=False))


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
def test_orders_keep_the_number_in_flight(cls: type[Strategy]) -> None:
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
    import subprocess
    import sys

    code = "import fedfa.strategies, sys; print([m for m in ('torch', 'flwr') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_same_rules_run_on_torch_tensors() -> None:
    import torch

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


# Identities ----------------------------------------------------------------------------------------------------------


def random_stream(
    count: int, per_version: int, seed: int = 0, fresh: bool = False, same_n: bool = True
) -> list[Arrival]:
    """Results whose bases exist when every ``per_version``-th arrival publishes."""
    rng = np.random.default_rng(seed)
    stream = []
    for i in range(count):
        version = i // per_version
        base = version if fresh else max(0, version - int(rng.integers(0, 3)))
        n = 4 if same_n else int(rng.integers(1, 9))
        values = rng.normal(size=6).astype(np.float32)
        stream.append(Arrival(client=i, base_version=base, params=values, num_examples=n, num_steps=5))
    return stream


START = np.linspace(-1, 1, 6, dtype=np.float32)


@pytest.mark.parametrize(
    ("one", "other", "stream"),
    [
        (fedfa.FedNova(concurrency=4), fedfa.FedAvg(concurrency=4), random_stream(20, 4, fresh=True, same_n=False)),
        (
            fedfa.FedBuff(concurrency=4, buffer=4, refill="batch"),
            fedfa.FedAvg(concurrency=4),
            random_stream(20, 4, fresh=True),
        ),
        (fedfa.FedFaParam(window=1), fedfa.FedAsync(beta=1.0, staleness="constant"), random_stream(20, 1)),
        (
            fedfa.FedFaDelta(window=1, server_lr=1.0),
            fedfa.FedBuff(buffer=1, concurrency=10, staleness="constant"),
            random_stream(20, 1),
        ),
        (fedfa.FedProx(concurrency=4), fedfa.FedAvg(concurrency=4), random_stream(20, 4, same_n=False)),
        (fedfa.FedFaAgree(window=3, server_lr=1.0), fedfa.FedFaParam(window=3), random_stream(20, 3)),
        (fedfa.FedFaProx(window=3), fedfa.FedFaDelta(window=3), random_stream(20, 3)),
        (fedfa.FedFaNova(window=3), fedfa.FedFaDelta(window=3), random_stream(20, 3)),
    ],
    ids=lambda value: value.name if isinstance(value, Strategy) else "",
)
def test_identities(one: Strategy, other: Strategy, stream: list[Arrival]) -> None:
    a, b = replay(one, START, stream), replay(other, START, stream)
    assert a.versions == b.versions
    assert a.versions[-1] > 0
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-5)


def test_the_window_leaks_single_updates() -> None:
    """K (w_t+1 - w_t) = w_new - w_old: what anyone who reads all versions learns, and docs must not deny."""
    stream = random_stream(12, 100, seed=3)
    models = replay(fedfa.FedFaParam(window=4), START, stream)
    for t in range(5, 12):
        np.testing.assert_allclose(
            4 * (models[t] - models[t - 1]), stream[t].params - stream[t - 4].params, rtol=1e-4, atol=1e-5
        )


# The window ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "weighting"), [(1, "uniform"), (5, "uniform"), (16, "examples"), (100, "uniform")])
def test_window_mean_does_not_drift_over_1e5_arrivals(window: int, weighting: str) -> None:
    rng = np.random.default_rng(window)
    results = (rng.normal(size=(997, 8)) * rng.choice([1e-3, 1.0, 1e3], size=(997, 1))).astype(np.float32)
    examples = rng.integers(1, 50, size=997).astype(float) if weighting == "examples" else np.ones(997)
    total = Window(results[0], 8, window)
    for i in range(100_000):
        n = examples[i % 997]
        total.add(Summand(results[i % 997], weight=n, head_weight=n))
        if i % 9973 == 0 or i == 99_999:
            kept = [j % 997 for j in range(max(0, i - window + 1), i + 1)]
            weights = examples[kept]
            naive = (results[kept].astype(np.float64) * weights[:, None]).sum(0) / weights.sum()
            scale = np.abs(results[kept]).max()
            np.testing.assert_allclose(total.mean(), naive, atol=1e-6 * scale, rtol=1e-6)


def test_a_huge_value_that_has_left_the_window_leaves_no_trace() -> None:
    total = Window(np.zeros(3, np.float32), 3, 4)
    for value in [1.0, 2.0, 1e30, 3.0] + [1.0] * 40:
        total.add(Summand(np.full(3, value, np.float32)))
    np.testing.assert_array_equal(total.mean(), np.ones(3, np.float32))


def test_long_vectors_take_the_blocked_and_threaded_path_to_the_same_result() -> None:
    rng = np.random.default_rng(0)
    length = (1 << 20) + 12_345
    results = rng.normal(size=(6, length)).astype(np.float32)
    total = Window(results[0], length - 1000, 3)
    for result in results:
        total.add(Summand(result, weight=2.0, head_weight=0.5))
    expected = results[3:].astype(np.float64).sum(0)
    np.testing.assert_allclose(total.total[:-1000], 0.5 * expected[:-1000], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(total.mean()[-1000:], expected[-1000:] / 3, rtol=1e-5, atol=1e-6)


# Conformance ---------------------------------------------------------------------------------------------------------


def test_memory_of_a_long_vector_is_used_again_only_when_nobody_holds_it() -> None:
    model = np.zeros(1 << 23, np.float32)
    one = blend(model, model, 0.5)
    place, part, tensor = one.ctypes.data, one[5:10], torch.from_numpy(one)
    del one
    tensor.fill_(7.0)
    other = blend(model, model, 0.5)
    assert other.ctypes.data != place
    assert part.tolist() == [7.0] * 5
    del part
    again = blend(model, model, 0.5)
    assert again.ctypes.data != place
    del tensor
    assert blend(model, model, 0.5).ctypes.data == place
    assert not blend(model, model, 0.5).any()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_conformance_vectors_hold_for_us_and_for_the_naive_rules(case: Any) -> None:
    ours = replay_case(case)
    np.testing.assert_allclose(np.array(ours), np.array(case.models), atol=2e-6)
    assert ours.versions == case.versions
    assert sorted(ours.refused) == case.refused
    naive = reference_replay(case.strategy, case.parameters, case.initial_model, case.arrivals, case.num_trainable)
    np.testing.assert_allclose(np.array(naive), np.array(case.models), atol=2e-6)


def test_conformance_covers_every_strategy() -> None:
    assert {case.strategy for case in cases()} == set(STRATEGIES)


def test_replay_takes_lists_and_other_precisions_and_refuses_other_types() -> None:
    stream = [
        Arrival(client=0, base_version=0, params=[1, 2]),
        Arrival(client=1, base_version=0, params=np.array([3.0, 4.0])),
        Arrival(client=2, base_version=0, params=np.array([3, 4])),
        Arrival(client=3, base_version=0, params="nonsense"),
        Arrival(client=4, base_version=9, params=[1.0, 1.0]),
        Arrival(client=5, base_version=0, params=[1.0, 1.0], dispatch=5),
        Arrival(client=5, base_version=0, params=[1.0, 1.0], dispatch=5),
    ]
    models = replay(fedfa.FedFaParam(window=1), [0.0, 0.0], stream)
    assert sorted(models.refused) == [2, 3, 4, 6]
    huge = [Arrival(client=0, base_version=0, params=np.full(2, 3e38, np.float32))] * 2
    absurd = replay(fedfa.FedFaDelta(window=1, server_lr=1.0), np.full(2, -3e38, np.float32), huge)
    assert "is absurd" in absurd.refused[0]
    close(models, [[1, 2], [3, 4], [3, 4], [3, 4], [3, 4], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_examples": float("inf")}, "no work done"),
        ({"num_steps": 1e-320}, "no work done"),
        ({"num_examples": None}, "no work done"),
        ({"num_examples": "3"}, "no work done"),
        ({"base_version": 0.5}, "unknown base version"),
        ({"base_version": -1}, "unknown base version"),
    ],
    ids=str,
)
def test_absurd_arrivals_are_refused(settings: dict[str, Any], reason: str) -> None:
    for cls in (fedfa.FedAvg, fedfa.FedNova, fedfa.FedFaNova):
        good: dict[str, Any] = {"client": 0, "base_version": 0, "params": [1.0, 2.0]}
        models = replay(small(cls), [0.0, 0.0], [Arrival(**(good | settings))])
        assert reason in models.refused[0]
        assert models[0].tolist() == [0.0, 0.0]


def test_replay_wants_one_flat_vector() -> None:
    with pytest.raises(fedfa.ConfigError, match="must be one flat vector"):
        replay(fedfa.FedAvg(), np.zeros((2, 2)), [])
    with pytest.raises(fedfa.ConfigError, match="num_trainable = 5: must be between 0 and the model's 2 entries"):
        replay(fedfa.FedAvg(), [0.0, 0.0], [], num_trainable=5)
