"""Conformance vectors: small streams of arrivals with the models every strategy must publish.

The same names mean different formulas in different frameworks. ``vectors.json`` defines ours in plain numbers, to
check any implementation in any language:

    from fedfa.strategies.conformance import cases
    for case in cases():
        models = my_implementation(case.strategy, case.parameters, case.initial_model, case.arrivals)
        assert numpy.allclose(models, case.models, atol=1e-5)

``python -m fedfa.strategies.conformance`` checks this package against them; with ``--write`` it computes them again.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fedfa.settings import build
from fedfa.strategies.registry import STRATEGIES
from fedfa.strategies.replay import Arrival, Models, replay

FILE = "vectors.json"


@dataclass(frozen=True)
class Case:
    """One strategy with some parameters, a stream, and the global model right after each arrival."""

    name: str
    strategy: str
    parameters: dict[str, Any]
    num_trainable: int
    """Entries of the model that are parameters; the rest are buffers such as BatchNorm statistics."""
    initial_model: list[float]
    arrivals: list[dict[str, Any]]
    models: list[list[float]]
    versions: list[int]
    """Global version right after each arrival."""
    refused: list[int]
    """Positions of arrivals that must be refused."""


def cases() -> list[Case]:
    """All vectors that ship with the package."""
    text = (files("fedfa.strategies.conformance") / FILE).read_text()
    return [Case(**case) for case in json.loads(text)["cases"]]


def replay_case(case: Case) -> Models:
    """The result of this package for a case."""
    strategy = build(STRATEGIES[case.strategy], case.parameters, case.name)
    arrivals = [Arrival(**arrival) for arrival in case.arrivals]
    return replay(strategy, case.initial_model, arrivals, case.num_trainable)
