"""What strategies with a sliding window share: the last K results, and a new model at every arrival."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedfa.errors import check
from fedfa.strategies.base import Flight, Strategy, Update, Weighting, example_weight
from fedfa.strategies.vectors import Summand, Vector, Window


@dataclass(kw_only=True, eq=False)
class Windowed(Strategy, ABC):
    """The window fills up once. From then on every arrival replaces the oldest entry and publishes a model.

    The K-th arrival publishes version 1. Partial means are never published: they would show single updates.
    """

    window: int = 5
    """K: how many results the window holds."""
    weighting: Weighting = "uniform"
    """Weigh clients by their examples, or equally."""
    one_slot_per_client: bool = False
    """A client's new result replaces its older one in the window."""

    results: Window = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.window >= 1, "window", self.window, "must be at least 1")

    @property
    def round_size(self) -> int:
        return self.window

    def check_clients(self, num_clients: int) -> None:
        super().check_clients(num_clients)
        check(
            not self.one_slot_per_client or self.window <= num_clients,
            "window",
            self.window,
            f"with one_slot_per_client it never fills from {num_clients} clients; lower it",
        )

    def reset(self) -> None:
        self.results = self.new_window()

    def new_window(self) -> Window:
        return Window(self.model, self.num_trainable, self.window, self.one_slot_per_client)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        self.results.add(self.entry(update, example_weight(update, self.weighting)))
        return self.next_model() if self.results.count == self.window else None

    @abstractmethod
    def entry(self, update: Update, n_k: float) -> Summand:
        """What the window keeps of an update."""

    @abstractmethod
    def next_model(self) -> Vector:
        """The new global model, from the full window."""
