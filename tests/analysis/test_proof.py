"""What a check of the FedFa paper's convergence proof found, each finding on a small quadratic.

Numbers in brackets are the paper's numbered equations; those from 11 on are in its appendix.
"""

import numpy as np
import pytest

import fedfa
from fedfa.analysis import theory
from fedfa.simulation.distributions import Trace
from tests.helpers.quadratics import Quadratics, run_of, squared


def setting_of(run: fedfa.Run, task: Quadratics, *, window: int, global_variance: float, gap: float) -> theory.Setting:
    """The theorem's constants of a run without noise whose differences have the total weight 1."""
    return theory.Setting(
        updates=run.manifest["version"],
        local_steps=task.steps,
        local_lr=task.lr,
        server_lr=1.0,
        max_staleness=theory.oldest(int(run.updates["staleness"].to_numpy().max()), window),
        smoothness=float(task.curvatures.max()),
        gradient_bound=task.gradient_bound(),
        local_variance=task.noise**2,
        global_variance=global_variance,
        gap=gap,
    )


def repaired(s: theory.Setting) -> float:
    """Theorem 1 with both lost factors of 2, and with T5 bounded by G instead of cancelled against T4."""
    bound = theory.theorem1(s)
    return bound.start + 2 * (bound.drift + bound.noise) + theory.step_condition(s) * s.gradient_bound


def speeds(weather: fedfa.Weather, clients: int) -> np.ndarray:
    forecast = weather.forecast(0, 0)
    return np.array([forecast.delay(client, 0).compute_seconds for client in range(clients)])


# The lost factors of 2 ------------------------------------------------------------------------------------------------


def test_the_noise_term_loses_a_factor_of_2() -> None:
    """One client, one local step of length 1/L: T3 = 0 and T4 = T5, so (25) is an equality without its drift."""
    sigma, updates, start = 2.0, 200, np.full(1000, 0.1)
    task = Quadratics(np.zeros(1000), start, lr=1.0, noise=sigma)
    run = run_of(fedfa.FedFaParam(concurrency=1, window=1), task, updates)
    setting = setting_of(run, task, window=1, global_variance=0.0, gap=squared(start) / 2)
    bound = theory.theorem1(setting)
    measured = np.mean(task.squared_gradients()[:-1])
    assert bound.start == pytest.approx(squared(start) / updates)
    assert bound.noise == pytest.approx(sigma**2 / 2)
    assert measured == pytest.approx(bound.start + 2 * bound.noise, rel=0.02)
    assert measured > 1.9 * (bound.start + bound.noise)


def test_the_drift_term_loses_a_factor_of_2() -> None:
    """With every client in the window once, the run ends at a fixed model: there only T3 counts."""
    steps, lr = 8, 0.5
    task = Quadratics([[0.0], [1.0]], [0.5], lr, curvatures=[[1.0], [0.2]], steps=steps)
    run_of(fedfa.FedFaParam(concurrency=2, window=2), task, 200)
    model = task.path[-1]
    assert model == pytest.approx(task.path[-2])
    norm = squared(task.gradients(model).mean(0))
    local, t3, t4 = np.tile(model, (2, 1)), [], []
    for _ in range(steps):
        mean = task.gradients(local).mean(0)
        t3.append(squared(task.gradients(model).mean(0) - mean))
        t4.append(squared(mean))
        local = local - lr * task.gradients(local)
    assert norm == pytest.approx(np.mean(t3) - np.mean(t4), rel=1e-3)
    assert np.mean(t3) / 2 < norm < np.mean(t3)  # (26) keeps half of T3's bound, and norm is above half of T3


# T4 and T5 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [1.0, 0.1, 1e-3])
def test_t4_does_not_cancel_t5_at_any_step(condition: float) -> None:
    """At the optimum, with L = Q = eta_l = 1: the norm of a mean (T4) against a mean of norms (T5)."""
    centres = np.random.default_rng(0).normal(size=(20, 6))
    gradients = Quadratics(centres, centres.mean(0), lr=1.0).gradients(centres.mean(0))
    norm_of_mean, mean_of_norms = squared(gradients.mean(0)), float(np.mean(np.sum(gradients**2, 1)))
    assert norm_of_mean < 1e-30
    assert mean_of_norms == pytest.approx(np.sum(centres.var(0)))
    assert mean_of_norms == pytest.approx(5, abs=0.1)
    t4, t5 = condition / 2 * norm_of_mean, condition**2 / 2 * mean_of_norms
    assert t5 - t4 > 0.99 * t5 > 0


@pytest.mark.parametrize(
    "strategy",
    [fedfa.FedFaParam(concurrency=1, window=1), fedfa.FedFaDelta(concurrency=1, window=1, server_lr=1.0)],
    ids=["param", "delta"],
)
def test_a_run_can_lie_above_the_bound(strategy: fedfa.Strategy) -> None:
    """One client at a time, drawn evenly, and exact gradients: all that is assumed holds, and Theorem 1 does not."""
    lr = 0.01
    task = Quadratics([[-1.0], [1.0]] * 4, [0.0], lr)
    run = run_of(strategy, task, 4000)
    setting = setting_of(run, task, window=1, global_variance=1.0, gap=0.0)
    assert theory.step_condition(setting) == pytest.approx(lr)
    assert setting.max_staleness == 1
    measured = np.mean(task.squared_gradients()[:-1])
    assert measured == pytest.approx(lr / (2 - lr), rel=0.3)  # variance of w <- (1 - lr) w +- lr, once steady
    assert 2 * theory.theorem1(setting).total < measured <= repaired(setting)


# The corollary --------------------------------------------------------------------------------------------------------


def with_the_corollarys_steps(updates: int, steps: int, window: int, max_staleness: float) -> theory.Setting:
    local_lr, server_lr = theory.corollary_steps(updates, steps, window)
    return theory.Setting(
        updates=updates, local_steps=steps, local_lr=local_lr, server_lr=server_lr, max_staleness=max_staleness,
        smoothness=2.0, gradient_bound=3.0, local_variance=0.5, global_variance=1.5, gap=10.0,
    )  # fmt: skip


@pytest.mark.parametrize("window", [1, 5, 20])
def test_the_staleness_term_does_not_fall_with_the_window(window: int) -> None:
    """(10) prints Q sigma^2 tau_max^2 / (T K^2); its own steps in (9) give that without K^2."""
    updates, steps, tau = 10_000, 4, 30
    setting = with_the_corollarys_steps(updates, steps, window, tau)
    bound = theory.theorem1(setting)
    factor = 3 * setting.smoothness**2 * (0.5 + 1.5 + 3.0)
    stale, local = steps * tau**2 / updates, steps / (updates * window**2)
    assert bound.drift == pytest.approx(factor * (stale + local))
    assert bound.start == pytest.approx(2 * setting.gap / (updates * steps) ** 0.5)
    assert bound.noise == pytest.approx(setting.smoothness / 2 * 0.5 / (updates * steps) ** 0.5)
    unpaid = theory.step_condition(setting) * setting.gradient_bound  # what T5 leaves
    assert unpaid == pytest.approx(setting.smoothness * 3.0 * (steps / updates) ** 0.5)


def test_fedfas_versions_run_k_times_as_fast_as_fedbuffs() -> None:
    """The same arrivals in the same order, but K times the versions, and K times the staleness."""
    window, concurrency, arrivals, steps = 5, 10, 1500, 4
    tau, versions, clients, means = {}, {}, {}, {}
    strategies = (
        fedfa.FedFaParam(concurrency=concurrency, window=window),
        fedfa.FedBuff(concurrency=concurrency, buffer=window, refill="immediate"),
    )
    for name, strategy, kept in zip(("fedfa", "fedbuff"), strategies, (window, 1), strict=True):
        run = run_of(strategy, Quadratics(np.zeros((50, 1)), [1.0], lr=0.01), arrivals, "paper")
        staleness = run.updates["staleness"].to_numpy()
        tau[name], means[name] = theory.oldest(int(staleness.max()), kept), staleness.mean()
        versions[name], clients[name] = run.manifest["version"], run.updates["client"].to_list()
    assert clients["fedfa"] == clients["fedbuff"]
    assert versions == {"fedfa": arrivals - window + 1, "fedbuff": arrivals // window}
    assert means["fedfa"] == pytest.approx(window * means["fedbuff"], rel=0.02)

    def ratios(updates: dict[str, int]) -> tuple[float, float]:
        """FedFa's start and drift term over FedBuff's, with the corollary's steps."""
        fa, buff = (
            theory.theorem1(with_the_corollarys_steps(updates[name], steps, window, tau[name]))
            for name in ("fedfa", "fedbuff")
        )
        return fa.start / buff.start, fa.drift / buff.drift

    as_many_versions = ratios(dict.fromkeys(versions, 1000))
    assert as_many_versions == pytest.approx((1.0, window**2), rel=0.15)
    as_many_arrivals = ratios(versions)
    assert as_many_arrivals == pytest.approx((window**-0.5, window), rel=0.15)


# Who takes part -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "concurrency", "low", "high"), [(100, 10, 0.50, 0.53), (10, 5, 0.54, 0.62), (10, 10, 0.62, 0.75)]
)
def test_the_share_of_updates_from_the_faster_half_of_the_clients(
    clients: int, concurrency: int, low: float, high: float
) -> None:
    """Close to half where few of many train at a time; where all do, in proportion to speed."""
    updates = 2000
    task = Quadratics(np.zeros((clients, 1)), [0.0], lr=0.1)
    run = run_of(fedfa.FedFaParam(concurrency=concurrency, window=5), task, updates, fedfa.Weather())
    seconds = speeds(fedfa.Weather(), clients)
    shares = np.bincount(run.updates["client"].to_numpy(), minlength=clients) / updates
    assert low < shares[np.argsort(seconds)[: clients // 2]].sum() < high
    if concurrency == clients:
        assert shares == pytest.approx(1 / seconds / np.sum(1 / seconds), abs=0.002)


def test_smaller_steps_do_not_lead_to_the_optimum_where_fast_clients_take_part_more_often() -> None:
    """Four clients that train all the time: the run goes from the optimum to the mean weighted by speed."""
    weather = fedfa.Weather(speed=Trace(values=(1.0, 3.0)))
    seconds = speeds(weather, 4)
    assert set(seconds) == {1.0, 3.0}
    centres = np.where(seconds == 1.0, 1.0, -1.0)
    weighed = np.sum(centres / seconds) / np.sum(1 / seconds)
    bias = (weighed - centres.mean()) ** 2
    assert bias > 0.2
    bounds = []
    for lr, updates in ((0.02, 1000), (0.005, 4000)):
        task = Quadratics(centres[:, None], [centres.mean()], lr)
        run = run_of(fedfa.FedFaParam(concurrency=4, window=2), task, updates, weather)
        bounds.append(repaired(setting_of(run, task, window=2, global_variance=float(np.var(centres)), gap=0.0)))
        assert task.squared_gradients()[-1] == pytest.approx(bias, rel=0.15)
    assert bounds[1] < bounds[0] / 4
    assert np.mean(task.squared_gradients()) > 4 * bounds[1]
