"""The convergence bound of a run as a table, and in sentences that help to choose the next settings."""

import math

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedfa.analysis import theory
from fedfa.analysis.estimates import Estimate


def short(value: float) -> str:
    """About three digits, over many orders of magnitude."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def at_most(value: float) -> str:
    """Two digits, rounded down: for limits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / unit * (1 + 1e-12)) * unit:.2g}"


def rows(e: Estimate) -> list[tuple[str, str, str]]:
    """Symbol, value, what it is."""
    s, c, bound = e.setting, e.constants, theory.theorem1(e.setting)
    least = "0, the lower bound of cross-entropy" if c.least_is_known else "the smallest f seen, so the gap is too low"
    waits = s.max_staleness - e.staleness - 1
    window = f", and {waits:.0f} in the window" if waits else ""
    all_in_one = "" if s.local_variance else ": a batch holds all of its data"
    sent = f"{e.concurrency} clients x weight {short(e.weight)} x"
    every = "" if c.clients == 1 else f" of {c.clients} clients"
    return [
        ("T", short(s.updates), "versions published"),
        ("Q", short(s.local_steps), "local steps, in the mean"),
        ("eta_l", short(s.local_lr), "local step size"),
        ("eta_g", short(s.server_lr), f"server's step along the mean of K = {e.window}"),
        ("tau_max", short(s.max_staleness), f"from 1: largest staleness {e.staleness} on arrival, plus 1{window}"),
        ("L", short(s.smoothness), "largest change of grad f per length"),
        ("G", short(s.gradient_bound), f"largest squared gradient{every}"),
        ("sigma_l^2", short(s.local_variance), f"variance of a mini-batch's gradient within a client{all_in_one}"),
        ("sigma_g^2", short(s.global_variance), "variance of the gradient across clients"),
        ("gap", short(s.gap), f"f(w_0) - f*, with f* = {least}"),
        ("start", short(bound.start), "2 gap / (eta_g Q eta_l T)"),
        ("drift", short(bound.drift), "3 L^2 (Q eta_l)^2 (eta_g^2 tau_max^2 + 1) (sigma_l^2 + sigma_g^2 + G)"),
        ("noise", short(bound.noise), "L/2 eta_g eta_l sigma_l^2"),
        ("bound", short(bound.total), "start + drift + noise"),
        ("measured", short(e.mean_norm), f"mean |grad f|^2 at {len(e.versions)} models: what is bounded"),
        ("condition", short(theory.step_condition(s)), "eta_g eta_l Q L: the theorem asks for at most 1"),
        ("generation", short(theory.generation_step(s, e.concurrency, e.weight)), f"{sent} eta_l Q L"),
        (
            "reach",
            short(theory.generation_reach(s, e.concurrency, e.weight)),
            f"{sent} (1 - (1 - eta_l L)^Q): clients stop at their minimum",
        ),
    ]


def as_rich(e: Estimate) -> Table:
    """For the terminal."""
    table = Table(title=f"{e.label}, seed {e.seed}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    parts = ("start", "measured")
    for symbol, value, meaning in rows(e):
        if symbol in parts:
            table.add_section()
        table.add_row(symbol, value, meaning)
    return table


def words(e: Estimate) -> list[str]:
    """The conclusions, a line each; they are only as certain as the constants."""
    return [
        *([f"Assumed: {'; '.join(e.assumed)}."] if e.assumed else []),
        *([f"Replayed accuracies lie {e.apart:.1g} from the recorded ones: another machine."] if e.apart else []),
        _verdict(e),
        _steps(e),
        *([_window(e)] if e.sliding else []),
    ]


def _verdict(e: Estimate) -> str:
    """How useful the bound is for this run."""
    losses, s = e.constants.losses, e.setting
    if not e.constants.finite:
        bad = [version for version, norm in zip(e.versions, e.constants.norms, strict=True) if not math.isfinite(norm)]
        return (
            f"The run diverged: gradients are not finite at {len(bad)} of {len(e.versions)} models, first at version "
            f"{bad[0]:,}. The bound says nothing about it; the constants are those of the other models."
        )
    fall = f"f went from {short(losses[0])} to {short(losses[-1])}"
    if not e.settled:
        return (
            f"The run did not settle: {fall}. G and the bound grow with the iterates and have no meaning; the "
            "constants are those along its path."
        )
    if theory.step_condition(s) > 1:
        return (
            f"The theorem does not apply: eta_g eta_l Q L is {short(theory.step_condition(s))}, above 1 (it would ask "
            f"for local.lr up to {at_most(s.local_lr / theory.step_condition(s))}). The run settled nevertheless: "
            f"{fall}."
        )
    bound, measured = theory.theorem1(s).total, e.mean_norm
    if bound < measured:
        return (
            "The bound is below what was measured: the constants are too low, or the theorem fails here "
            f"(docs/theory.md). Raise --models to tell; {fall}."
        )
    ratio = f"{short(bound / measured)} times" if measured else "infinitely far from"
    return (
        f"The theorem's step condition holds. Its bound, as printed, is {ratio} what was measured: it shows which term "
        f"dominates, and neither predicts nor ranks settings; {fall}."
    )


def _steps(e: Estimate) -> str:
    """Weight and local step, by how far one generation of clients moves the model."""
    s, c = e.setting, e.concurrency
    weight = theory.largest_weight(s, c)
    buffer = math.ceil(1 / weight * (1 - 1e-12))
    limit = f"up to {at_most(weight)} in all (server_lr of fedfa-delta; with 1/K as in fedbuff, K >= {buffer:,})"
    if e.from_bases:
        if s.server_lr <= 1:
            steady = (
                "A mean of models, on a quadratic, is steady for any M_c and K if the clients are: local.lr below "
                f"2/L = {at_most(2 / s.smoothness)}, now {short(s.local_lr)}."
            )
        else:
            steady = (
                "Steps from the bases, on a quadratic, are steady for any M_c and K if eta_g times the share of its "
                f"way to the minimum that a client goes is below 2: now {short(s.server_lr)} times "
                f"{short(theory.reach(s))}."
            )
        return f"{steady} With these constants, a rule that adds differences to the model may weigh each {limit}."
    reached = theory.generation_reach(s, c, e.weight)
    if reached <= 1:
        judged = "at most a round of FedAvg, and stable with late differences on a quadratic"
    elif reached <= math.pi / 2:
        judged = "more than a round of FedAvg, but stable with late differences on a quadratic (up to about 1.6)"
    else:
        judged = "unstable with late differences on a quadratic (above about 1.6)"
        judged += "; this run was stable, because L is from its sharpest point" if e.settled else ""
    return (
        f"One generation of clients (M_c = {c}), without each other's work, together goes {short(reached)} times the "
        f"way to their minima: {judged}. To stay at 1, weigh a difference {limit}, now {short(e.weight)}; or, at this "
        f"weight, set local.lr up to {at_most(theory.largest_local_lr(s, c, e.weight))}, now {short(s.local_lr)}."
    )


def _window(e: Estimate) -> str:
    largest = theory.largest_window(e.setting, e.staleness)
    return f"A sliding window of up to K = {largest:,} at most doubles the drift term of K = 1 (now K = {e.window})."
