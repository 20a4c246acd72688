"""The strategies that the paper compares, each in every reading that matters."""

from dataclasses import dataclass

from fedfa.strategies.fedfa import LONGEST_FROM_BASES

LAST_LEADING = 3


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy as ``fedfa compare`` takes it, and the row of the paper's tables that it answers."""

    spec: str
    title: str
    row: str
    turn: int = 0
    """Whose runs are made first: the lowest."""

    @property
    def leading(self) -> bool:
        return self.turn <= LAST_LEADING


def contenders(window: int, concurrency: int) -> tuple[Contender, ...]:
    """All strategies of Table 1, for a window (or buffer) of this size and so many clients in flight.

    FedBuff twice: as the common frameworks have it (the mean of K models, new work in batches), and as its own paper
    has it (differences, stale ones count less, new work at once). FedFa-Delta with three steps from the current model,
    and three from the models that its clients started from, spelt out, so that records keep their meaning whatever
    the defaults become; and with a window as large as what is in flight, where the usual one is smaller.
    """
    k = window
    as_in_flight = (by_agreement(concurrency, "FedFa-Delta, K = M_c", 1),) if window < concurrency else ()
    return (
        Contender("fedavg", "FedAvg", "fedavg", 3),
        Contender("fedasync", "FedAsync", "fedasync", 5),
        Contender(f"fedbuff:buffer={k}:origin=current", "FedBuff (model mean)", "fedbuff", 2),
        Contender(f"fedbuff:buffer={k}:refill=immediate:staleness=polynomial", "FedBuff (its paper)", "fedbuff", 2),
        Contender(f"port-urgent:buffer={k}", "Port-Urgent", "port-urgent", 4),
        Contender(f"port-non-urgent:buffer={k}", "Port-Non-Urgent", "port-non-urgent", 4),
        Contender(f"fedfa-param:window={k}", "FedFa-Param", "fedfa-param"),
        by_agreement(k, "FedFa-Delta by agreement", 1),
        *as_in_flight,
        Contender(f"fedfa-delta:window={k}:anchor=model", "FedFa-Delta 1/M_c", "fedfa-delta", 1),
        at_pace(k, concurrency, "FedFa-Delta at FedAvg's pace", 1),
        Contender(f"fedfa-delta:window={k}:anchor=bases:server_lr=1.5", "FedFa-Delta 1.5 from bases", "fedfa-delta", 1),
        Contender(f"fedfa-delta:window={k}:server_lr={1 / k:g}", "FedFa-Delta 1/K", "fedfa-delta", 6),
        Contender(f"fedfa-delta:window={k}:server_lr=1.0", "FedFa-Delta as printed", "fedfa-delta", 6),
    )


def by_agreement(window: int, title: str, turn: int = 0) -> Contender:
    """FedFa-Delta as it is by default: from the bases, with a step as long as the clients agree."""
    return Contender(f"fedfa-delta:window={window}:anchor=bases", title, "fedfa-delta", turn)


def at_pace(window: int, concurrency: int, title: str, turn: int = 0) -> Contender:
    """FedFa-Delta from the bases with the step that moves the model as far per update as FedAvg does."""
    step = min(1 + (window - 1) / (2 * concurrency), LONGEST_FROM_BASES)
    return Contender(f"fedfa-delta:window={window}:anchor=bases:server_lr={step:g}", title, "fedfa-delta", turn)


def averaging(window: int, concurrency: int) -> tuple[Contender, ...]:
    """FedAsync with half its weight, and FedBuff with buffers up to twice what is in flight, beside FedFa-Delta.

    Where new work comes in batches, a buffer larger than what is in flight would never fill.
    """
    sizes = (window, concurrency, 2 * concurrency)
    return (
        Contender("fedasync", "FedAsync", "fedasync"),
        Contender("fedasync:beta=0.3", "FedAsync, beta = 0.3", "fedasync"),
        *(
            Contender(
                f"fedbuff:buffer={k}:refill=immediate:staleness=polynomial", f"FedBuff (its paper), K = {k}", "fedbuff"
            )
            for k in sizes
        ),
        *(
            Contender(f"fedbuff:buffer={k}:origin=current", f"FedBuff (model mean), K = {k}", "fedbuff")
            for k in sizes[:2]
        ),
        *(by_agreement(k, f"FedFa-Delta, K = {k}") for k in sizes),
    )


def some(window: int, concurrency: int, *rows: str) -> tuple[Contender, ...]:
    """The contenders that answer these rows."""
    return tuple(contender for contender in contenders(window, concurrency) if contender.row in rows)


def leading(window: int, concurrency: int, *rows: str) -> tuple[Contender, ...]:
    """Those of them that lead."""
    return tuple(contender for contender in some(window, concurrency, *rows) if contender.leading)


def extended(window: int) -> tuple[Contender, ...]:
    """FedNova and FedProx, each without FedFa and with it; FedProx with both of its anchors."""
    k = window
    return (
        Contender("fednova", "FedNova", "fednova"),
        Contender(f"fedfa-nova:window={k}", "FedNova with FedFa", "fedfa-nova"),
        Contender("fedprox", "FedProx", "fedprox"),
        Contender(f"fedfa-prox:window={k}:anchor=bases", "FedProx with FedFa by agreement", "fedfa-prox"),
        Contender(f"fedfa-prox:window={k}:anchor=model", "FedProx with FedFa 1/M_c", "fedfa-prox"),
    )
