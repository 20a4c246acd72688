"""The words that engine and executors share."""

from dataclasses import dataclass
from typing import Any

from fedfa.core import Flight
from fedfa.errors import in_a_line


@dataclass(slots=True)
class WorkOrder(Flight):
    """One client's local training, fully determined."""

    client: int
    nth: int
    """How many dispatches this client had before."""
    base: Any
    """The published model it starts from."""
    epochs: int
    prox_mu: float


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a work order; ``error`` is not empty where training raised."""

    params: Any
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
