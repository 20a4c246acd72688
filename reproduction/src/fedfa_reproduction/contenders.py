"""The strategies that the paper compares, each in every relevant reading, and FedFa-Agree.

Every relevant setting is explicit, so that records keep their meaning when defaults change.
"""

from fedfa.strategies.fedfa_agree import LONGEST_STEP
from fedfa_reproduction.base import Contender


def contenders(window: int, concurrency: int) -> tuple[Contender, ...]:
    """All strategies of Table 1, for a window (or buffer) of this size and this many clients in flight.

    FedBuff appears twice: as Plato, the paper's platform, and other frameworks compute it (the mean of K models, new
    work in batches), and as its authors run it (differences, stale ones count less, new work at once). FedFa-Delta has
    three steps from the current model. FedFa-Agree has its own step and two fixed ones, and also a window of M_c, if
    the usual window is smaller.
    """
    k = window
    as_in_flight = (agree(concurrency, "FedFa-Agree, K = M_c", 1),) if window < concurrency else ()
    return (
        Contender("fedavg", "fedavg", "FedAvg", "fedavg", 3),
        Contender("fedasync", "fedasync", "FedAsync", "fedasync", 5),
        model_mean(k, "FedBuff (model mean)", 2),
        as_its_authors(k, "FedBuff (its paper)", 2),
        Contender("port-urgent", f"port-urgent:buffer={k}", "Port-Urgent", "port-urgent", 4),
        Contender("port-non-urgent", f"port-non-urgent:buffer={k}", "Port-Non-Urgent", "port-non-urgent", 4),
        param(k, "FedFa-Param"),
        agree(k, "FedFa-Agree", 1),
        *as_in_flight,
        Contender("fedfa-delta", f"fedfa-delta:window={k}", "FedFa-Delta 1/M_c", "fedfa-delta", 1),
        agree_as_fedavg(k, concurrency, "FedFa-Agree, FedAvg's step", 1),
        Contender(
            "fedfa-agree-1.5", f"fedfa-agree:window={k}:server_lr=1.5", "FedFa-Agree, step 1.5", "fedfa-agree", 1
        ),
        Contender(
            "fedfa-delta-1/k", f"fedfa-delta:window={k}:server_lr={1 / k:g}", "FedFa-Delta 1/K", "fedfa-delta", 6
        ),
        Contender(
            "fedfa-delta-printed", f"fedfa-delta:window={k}:server_lr=1.0", "FedFa-Delta as printed", "fedfa-delta", 6
        ),
    )


def param(window: int, title: str, turn: int = 0) -> Contender:
    return Contender(f"fedfa-param-{window}", f"fedfa-param:window={window}", title, "fedfa-param", turn)


def agree(window: int, title: str, turn: int = 0) -> Contender:
    """FedFa-Agree with its defaults: its step is longer the more the clients agree."""
    return Contender(f"fedfa-agree-{window}", f"fedfa-agree:window={window}", title, "fedfa-agree", turn)


def agree_as_fedavg(window: int, concurrency: int, title: str, turn: int = 0) -> Contender:
    """FedFa-Agree with the fixed step that moves the model as far per update as FedAvg does."""
    step = min(1 + (window - 1) / (2 * concurrency), LONGEST_STEP)
    spec = f"fedfa-agree:window={window}:server_lr={step:g}"
    return Contender(f"fedfa-agree-{window}-as-fedavg", spec, title, "fedfa-agree", turn)


def model_mean(buffer: int, title: str, turn: int = 0) -> Contender:
    """FedBuff as in frameworks, with Plato's settings."""
    spec = f"fedbuff:buffer={buffer}:origin=current:refill=batch:staleness=constant"
    return Contender(f"fedbuff-mean-{buffer}", spec, title, "fedbuff", turn)


def as_its_authors(buffer: int, title: str, turn: int = 0) -> Contender:
    spec = f"fedbuff:buffer={buffer}:refill=immediate:staleness=polynomial"
    return Contender(f"fedbuff-authors-{buffer}", spec, title, "fedbuff", turn)


def averaging(window: int, concurrency: int) -> tuple[Contender, ...]:
    """FedAsync with half its weight, FedBuff with buffers up to 2 M_c, and FedFa-Agree.

    If new work comes in batches, a buffer larger than M_c would never fill.
    """
    sizes = (window, concurrency, 2 * concurrency)
    return (
        Contender("fedasync", "fedasync", "FedAsync", "fedasync"),
        Contender("fedasync-0.3", "fedasync:beta=0.3", "FedAsync, beta = 0.3", "fedasync"),
        *(as_its_authors(k, f"FedBuff (its paper), K = {k}") for k in sizes),
        *(model_mean(k, f"FedBuff (model mean), K = {k}") for k in sizes[:2]),
        *(agree(k, f"FedFa-Agree, K = {k}") for k in sizes),
    )


def with_row(found: tuple[Contender, ...], *rows: str) -> tuple[Contender, ...]:
    """The contenders for these rows."""
    return tuple(contender for contender in found if contender.row in rows)


def extended(window: int) -> tuple[Contender, ...]:
    """FedNova and FedProx, each without FedFa and with it; FedProx with FedFa-Agree, too."""
    k = window
    return (
        Contender("fednova", "fednova", "FedNova", "fednova"),
        Contender("fedfa-nova", f"fedfa-nova:window={k}", "FedNova with FedFa-Delta", "fedfa-nova"),
        Contender("fedprox", "fedprox", "FedProx", "fedprox"),
        Contender("fedprox-agree", f"fedfa-agree:prox_mu=0.01:window={k}", "FedProx with FedFa-Agree", "fedfa-agree"),
        Contender("fedfa-prox", f"fedfa-prox:window={k}", "FedProx with FedFa-Delta", "fedfa-prox"),
    )
