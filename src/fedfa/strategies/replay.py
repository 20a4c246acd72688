"""Drive a strategy from a recorded stream of arrivals: no clock, no training, numpy in and numpy out.

``replay`` takes arrivals from any source; ``replay_journal`` those of a deployment that kept its journal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfa.strategies.base import Flight, Strategy, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One recorded client result.

    Its base is the model that was published as ``base_version``. Where ``dispatch`` is given, a second arrival
    with the same number is refused as a repeat.
    """

    client: int
    base_version: int
    params: Any
    num_examples: int = 1
    num_steps: float = 1
    dispatch: int | None = None


class Models(list[np.ndarray]):
    """The global model right after each arrival; ``refused`` maps the position of each refused one to the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[int, str] = {}
        self.versions: list[int] = []


def replay(
    strategy: Strategy, initial_model: Any, arrivals: Iterable[Arrival], num_trainable: int | None = None
) -> Models:
    """The global model right after each of these arrivals.

    ``strategy`` starts afresh. Models and results may be arrays of any floating precision or plain lists; results
    are converted to the initial model's precision. An arrival that the strategy refuses does not change the model.
    """
    model = np.array(initial_model)
    if model.dtype.kind in "iu":
        model = model.astype(np.float32)
    strategy.begin(model, num_trainable)
    published = {0: model}
    answered: set[int] = set()
    models = Models()
    for position, arrival in enumerate(arrivals):
        dispatch = position if arrival.dispatch is None else arrival.dispatch
        open_dispatch = -1 if arrival.dispatch in answered else dispatch
        known = isinstance(arrival.base_version, int | np.integer) and arrival.base_version in published
        update = Update(
            client=arrival.client,
            dispatch=dispatch,
            base_version=arrival.base_version,
            params=_as_model(arrival.params, model.dtype),
            base=published[arrival.base_version] if known else model,
            num_examples=arrival.num_examples,
            num_steps=arrival.num_steps,
        )
        with np.errstate(over="ignore"):  # absurd numbers are refused, not warned about
            orders = strategy.receive(
                update, {arrival.client: Flight(open_dispatch, arrival.base_version if known else -1)}
            )
        if orders.refused:
            models.refused[position] = orders.refused
        elif arrival.dispatch is not None:
            answered.add(arrival.dispatch)
        if orders.published:
            published[strategy.version] = strategy.model
        models.append(strategy.model.copy())
        models.versions.append(strategy.version)
    return models


def _as_model(params: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Floating arrays and plain lists in the model's precision; anything else as it is, for the strategy to refuse."""
    if isinstance(params, np.ndarray) and params.dtype.kind != "f":
        return params
    try:
        return np.array(params, dtype=dtype)
    except (TypeError, ValueError):
        return np.asarray(params, dtype=object)
