"""The FedFa paper's convergence bound (Theorem 1 and its corollary), as numbers.

    (1/T) sum_t |grad f(w_t)|^2  <=  2 (f(w_0) - f*) / (eta_g Q eta_l T)                                    start
                                   + 3 L^2 Q (Q eta_l^2) (eta_g^2 tau_max^2 + 1) (sigma_l^2 + sigma_g^2 + G)   drift
                                   + (L/2) eta_g eta_l sigma_l^2                                             noise

for a constant local step eta_l, provided that eta_g eta_l Q <= 1/L. Q local steps; tau_max counts from 1 and includes
the time a result spends in the window (see ``oldest``); G bounds |grad F_k|^2; sigma_l^2 and sigma_g^2 bound the
variance of a client's gradient within and across clients; L is the smoothness constant. ``estimates.py``
measures these constants on a finished run.

These are the paper's terms as printed. They are no guarantee: the proof has gaps, and some runs lie above the bound
although its conditions hold. docs/theory.md lists the gaps, and tests/analysis/test_proof.py shows them. G bounds
gradients along the whole run: where the iterates diverge there is no such G, and the bound says nothing.
"""

import math
from dataclasses import dataclass

from fedfa.errors import check, require


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything the bound depends on."""

    updates: int
    """T: publications."""
    local_steps: float
    """Q; where clients differ, their mean."""
    local_lr: float
    """eta_l"""
    server_lr: float
    """eta_g, the step along the mean of the window or buffer: 1 for FedFa-Param, ``server_lr`` for the others."""
    max_staleness: float
    """tau_max, counted from 1: see ``oldest``."""
    smoothness: float
    """L"""
    gradient_bound: float
    """G: the largest |grad F_k|^2"""
    local_variance: float
    """sigma_l^2"""
    global_variance: float
    """sigma_g^2"""
    gap: float
    """f(w_0) - f*"""

    def __post_init__(self) -> None:
        for name in ("updates", "local_steps", "local_lr", "server_lr", "smoothness"):
            check(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        for name in ("gradient_bound", "local_variance", "global_variance", "gap"):
            check(getattr(self, name) >= 0, name, getattr(self, name), "must be 0 or more")
        check(self.max_staleness >= 1, "max_staleness", self.max_staleness, "counts from 1 here")


@dataclass(frozen=True, slots=True)
class Bound:
    """The three terms of Theorem 1's bound."""

    start: float
    """The remaining effect of the initial model."""
    drift: float
    """Local steps and staleness pulling clients apart."""
    noise: float
    """Sampling within clients."""

    @property
    def total(self) -> float:
        return self.start + self.drift + self.noise


def theorem1(s: Setting) -> Bound:
    """The paper's bound, as printed, on the mean squared gradient norm over the run.

    Two steps of its proof, corrected, give twice this drift and noise, plus L eta_g eta_l Q G (see docs/theory.md).
    """
    steps, squares = s.local_steps * s.local_lr, s.local_steps * s.local_lr**2  # alpha(Q) and beta(Q)
    spread = s.local_variance + s.global_variance + s.gradient_bound
    return Bound(
        start=2 * s.gap / (s.server_lr * steps * s.updates),
        drift=3 * s.smoothness**2 * s.local_steps * squares * (s.server_lr**2 * s.max_staleness**2 + 1) * spread,
        noise=s.smoothness / 2 * s.server_lr * squares / steps * s.local_variance,
    )


def step_condition(s: Setting) -> float:
    """eta_g eta_l Q L: the theorem asks for at most 1."""
    return s.server_lr * s.local_lr * s.local_steps * s.smoothness


def generation_step(s: Setting, concurrency: int, weight: float | None = None) -> float:
    """M_c weight eta_l Q L: how far one generation of clients, without each other's work, moves the model.

    ``weight`` is the total weight of one difference: eta_g in a sliding window (the default), eta_g / K in FedBuff.
    Not in the paper. For FedAvg it is eta_l Q L. In practice it decides whether a run is stable: see docs/theory.md.
    """
    return concurrency * step_condition(s) * (1.0 if weight is None else weight / s.server_lr)


def reach(s: Setting) -> float:
    """The share of the way to its own minimum that a client goes on a quadratic, in the steepest direction.

    1 - (1 - eta_l L)^Q: about eta_l Q L for small steps, and never above 1 while eta_l L is at most 1. Above that,
    clients overshoot, by (eta_l L - 1)^Q; for eta_l L above 2 their own training diverges. Not in the paper.
    """
    step = s.local_lr * s.smoothness
    return 1.0 - (1.0 - step) ** s.local_steps if step <= 1 else 1.0 + (step - 1.0) ** s.local_steps


def generation_reach(s: Setting, concurrency: int, weight: float) -> float:
    """M_c weight (1 - (1 - eta_l L)^Q): ``generation_step``, clients not going beyond their own minimum.

    A round of FedAvg has at most 1. Suppose that all differences count M_c versions late. On a quadratic, errors then
    decay while this is below about pi / 2 (the classic limit for descent along delayed gradients), and grow above it.
    """
    return concurrency * weight * reach(s)


def largest_weight(s: Setting, concurrency: int) -> float:
    """The total weight of a difference at which ``generation_reach`` is 1."""
    return 1.0 / (concurrency * reach(s))


def largest_local_lr(s: Setting, concurrency: int, weight: float) -> float:
    """The local step eta_l at which ``generation_reach`` is 1; 1/L if it never is."""
    share = min(1.0, 1.0 / (concurrency * weight))
    return (1.0 - (1.0 - share) ** (1.0 / s.local_steps)) / s.smoothness


def oldest(staleness: float, window: int = 1) -> float:
    """tau_max for this largest staleness on arrival, which counts from 0.

    A result stays in a sliding window for K publications, and is used once more, one version older, at each. A buffer
    that is spent at once has window 1.
    """
    return staleness + window


def largest_window(s: Setting, staleness: float, factor: float = 2.0) -> int:
    """The largest K whose drift term is at most ``factor`` times that of K = 1, other things being equal.

    From eta_g^2 (staleness + K)^2 + 1 <= factor (eta_g^2 (staleness + 1)^2 + 1).
    """
    return max(1, math.floor(math.sqrt(factor * (staleness + 1) ** 2 + (factor - 1) / s.server_lr**2) - staleness))


def corollary_steps(updates: int, local_steps: int, window: int) -> tuple[float, float]:
    """The corollary's (eta_l, eta_g) without its unknown constants: 1 / (K sqrt(T Q)) and K.

    With them ``theorem1`` has a staleness term of order Q sigma^2 tau_max^2 / T; the paper prints / (T K^2).
    """
    require(min(updates, local_steps, window) >= 1, "updates, local_steps and window: must be at least 1")
    return 1.0 / (window * math.sqrt(updates * local_steps)), float(window)
