"""The connection to the clients of a deployment: what is sent, and what comes back."""

from queue import SimpleQueue
from typing import NamedTuple, Protocol

import numpy as np

from fedfa.executors.base import Trained
from fedfa.runs.recorder import Outcome


class TrainRequest(NamedTuple):
    """What a node gets."""

    dispatch: int
    base_version: int
    base: np.ndarray
    epochs: int
    prox_mu: float
    seed: int


class Answer(NamedTuple):
    """A client's result for this dispatch: a flat float32 vector of the model's length, and its metadata."""

    dispatch: int
    trained: Trained


class Failure(NamedTuple):
    """No usable result will come for this dispatch."""

    dispatch: int
    outcome: Outcome
    blameless: bool = False
    """Whether it is known not to be the node's fault; the node then continues to get work."""


class Nodes(NamedTuple):
    """These nodes are connected now."""

    present: frozenset[int]


Event = Answer | Failure | Nodes


class Transport(Protocol):
    """The connection to the clients."""

    events: SimpleQueue[Event]

    def send(self, node: int, request: TrainRequest) -> None:
        """Send the request to the node, and return at once; an Answer or a Failure always follows."""
        ...
