"""The FedFa paper's convergence bound (Theorem 1 and its corollary), as numbers.

    (1/T) sum_t |grad f(w_t)|^2  <=  2 (f(w_0) - f*) / (eta_g Q eta_l T)                                    start
                                   + 3 L^2 Q (Q eta_l^2) (eta_g^2 tau_max^2 + 1) (sigma_l^2 + sigma_g^2 + G)   drift
                                   + (L/2) eta_g eta_l sigma_l^2                                             noise

for a constant local step eta_l, provided that eta_g eta_l Q <= 1/L. Q local steps; tau_max counts from 1, as in the
paper (our staleness plus one); G bounds |grad F_k|^2; sigma_l^2 and sigma_g^2 bound the variance of a client's gradient
within and across clients; L is the smoothness constant.

Two points of the paper's proof to know before relying on it. It replaces the bases of all results in the window by
the oldest one, which no run does. And G bounds gradients along the whole run: where the iterates diverge there is no
such G, and the bound says nothing, whatever the step-size condition says (see docs/theory.md).
"""

import math
from dataclasses import dataclass

from fedfa.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything the bound depends on."""

    updates: int
    """T: publications."""
    local_steps: int
    """Q"""
    local_lr: float
    """eta_l"""
    server_lr: float
    """eta_g: 1 for FedFa-Param; the total weight of a difference for FedFa-Delta."""
    max_staleness: float
    """tau_max, counted from 1: our largest staleness plus one."""
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
            require(getattr(self, name) > 0, f"{name} = {getattr(self, name)}: must be above 0")
        for name in ("gradient_bound", "local_variance", "global_variance", "gap"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}: must be 0 or more")
        require(self.max_staleness >= 1, f"max_staleness = {self.max_staleness}: counts from 1 here")


@dataclass(frozen=True, slots=True)
class Bound:
    """The three terms of Theorem 1."""

    start: float
    """What is left of the way from the initial model."""
    drift: float
    """Local steps and staleness pulling clients apart."""
    noise: float
    """Sampling within clients."""

    @property
    def total(self) -> float:
        return self.start + self.drift + self.noise


def theorem1(s: Setting) -> Bound:
    """The bound on the mean squared gradient norm over the run."""
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


def generation_step(s: Setting, concurrency: int) -> float:
    """M_c eta_g eta_l Q L: how far one generation of clients, unaware of each other, moves the model.

    Not in the paper. It is what FedAvg keeps at eta_l Q L, and what decides in practice: see docs/theory.md.
    """
    return concurrency * step_condition(s)


def corollary_steps(updates: int, local_steps: int, window: int) -> tuple[float, float]:
    """The corollary's (eta_l, eta_g) without its unknown constants: 1 / (K sqrt(T Q)) and K."""
    require(min(updates, local_steps, window) >= 1, "updates, local_steps and window: must be at least 1")
    return 1.0 / (window * math.sqrt(updates * local_steps)), float(window)
