"""The seam between an engine and an executor. Only the engine decides what happens when.

The result of an in-flight client depends only on the model it got and on its own seed, both fixed at dispatch. The
weather fixes when it arrives. So an executor may compute any submitted work early, late or together, and the run is
the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fedfa.errors import in_a_line
from fedfa.learning.device import Device
from fedfa.strategies.base import Flight
from fedfa.strategies.vectors import Vector


@dataclass(slots=True)
class WorkOrder(Flight):
    """One client's local training, fully determined."""

    client: int
    nth: int
    """How many dispatches this client had before."""
    base: Vector
    """The published model that it starts from."""
    epochs: int
    prox_mu: float
    arrives: float
    """When the engine will ask for the result; earlier ones are computed first."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a work order; ``error`` is not empty if training raised."""

    params: Vector | None
    """The flat model, or None where there is none."""
    num_examples: int = 0
    num_steps: float = 0.0
    loss: float = float("nan")
    error: str = ""

    @classmethod
    def failed(cls, error: Exception) -> "Trained":
        return cls(None, error=in_a_line(error))

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


Workers = int | Callable[[], int]
"""How many processes train clients; or a function that says how many there may be, where they are worth it."""
NOTHING = Trained(None)
"""No answer came."""


class Executor(Protocol):
    """Computes local training."""

    @property
    def name(self) -> str: ...

    @property
    def shares(self) -> bool:
        """Whether clients of several runs are trained together, which is faster than one run after the other."""
        ...

    @property
    def device(self) -> Device:
        """Where models are kept, which determines the form in which they are passed."""
        ...

    def submit(self, order: WorkOrder) -> None:
        """Work that may be computed from now on."""
        ...

    def ready(self, dispatch: int) -> bool:
        """Whether nothing is gained by waiting before the result is asked for, while other runs go on."""
        ...

    def result(self, dispatch: int) -> Trained:
        """The outcome of a submitted order; may compute many orders at once. Each is asked for once."""
        ...

    def discard(self, dispatch: int) -> None:
        """This order's outcome will not be asked for."""
        ...

    def finished(self) -> dict[int, Trained]:
        """Outcomes that were computed but not asked for yet; a checkpoint must keep them."""
        ...

    def restore(self, finished: dict[int, Trained]) -> None:
        """Put such outcomes back; the orders are submitted again before."""
        ...

    def advance(self) -> None:
        """Compute some of what was submitted, or wait for it: no run that shares this executor's work can go on."""
        ...

    def meanwhile(self) -> None:
        """Keep others at work, without computing here. Called repeatedly during an evaluation."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class KeepsNothing:
    """What an executor answers that computes nothing ahead and holds nothing to let go of."""

    shares = False

    def ready(self, dispatch: int) -> bool:
        return True

    def finished(self) -> dict[int, Trained]:
        return {}

    def restore(self, finished: dict[int, Trained]) -> None:
        pass

    def advance(self) -> None:
        pass

    def meanwhile(self) -> None:
        pass

    def close(self) -> None:
        pass
