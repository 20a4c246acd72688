"""Drive a strategy from a recorded stream of arrivals: no clock, no training, numpy in and numpy out.

``replay`` takes arrivals from anywhere; ``replay_journal`` those of a deployment that kept them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedfa.core import Flight, Strategy, Update
from fedfa.errors import RecordError


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
    """The global model right after each arrival; ``refused`` tells by position which were not taken, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[int, str] = {}
        self.versions: list[int] = []


def replay(
    strategy: Strategy, initial_model: Any, arrivals: Iterable[Arrival], num_trainable: int | None = None
) -> Models:
    """The global model right after each of these arrivals.

    ``strategy`` starts afresh. Models and results may be arrays of any floating precision or plain lists; results
    are brought to the initial model's precision. Whatever a strategy refuses leaves the model as it was.
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


# Deployments ---------------------------------------------------------------------------------------------------------


class Aggregated(NamedTuple):
    """What became of one arrival."""

    client: int
    dispatch: int
    base_version: int
    staleness: int
    version: int
    """Right after it."""
    outcome: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """A deployment, aggregated once more."""

    strategy: Strategy
    arrivals: list[Aggregated]

    @property
    def model_digest(self) -> str:
        from fedfa import journal

        return journal.model_digest(self.strategy.model)


def replay_journal(folder: Path, strategy_class: str | None = None) -> Replayed:
    """Everything that a deployment's journal holds, given to a fresh strategy (``file.py:Class`` if it is not ours)."""
    from fedfa import journal
    from fedfa.experiment import make_strategy

    if not journal.segments(folder / journal.FOLDER):
        raise RecordError(f"{folder}: holds no journal; only deployments with keep-updates = true can be replayed")
    strategy: Strategy | None = None
    in_flight: dict[int, Flight] = {}
    bases: dict[int, Any] = {}
    arrivals: list[Aggregated] = []
    for entry, params in journal.read(folder / journal.FOLDER):
        client, dispatch = entry.get("client", -1), entry.get("dispatch", -1)
        if entry["kind"] == "begin":
            name = strategy_class or entry["strategy"]["name"]
            strategy = make_strategy({**entry["strategy"], "name": name}, "strategy")
            strategy.begin(params, entry["num_trainable"])
            continue
        if strategy is None:
            raise RecordError(f"{folder}: its journal does not start at the beginning of the run")
        if entry["kind"] == "dispatch":
            in_flight[client] = Flight(dispatch, entry["base_version"])
            bases[client] = strategy.model
        elif entry["kind"] in ("update", "lost"):
            staleness = strategy.version - in_flight[client].base_version
            outcome = _aggregate(strategy, entry, params, bases.pop(client), in_flight)
            base_version = in_flight.pop(client).base_version
            arrivals.append(Aggregated(client, dispatch, base_version, staleness, strategy.version, outcome))
    if strategy is None:
        raise RecordError(f"{folder}: its journal is empty")
    return Replayed(strategy, arrivals)


def _aggregate(strategy: Strategy, entry: dict[str, Any], params: Any, base: Any, in_flight: dict[int, Flight]) -> str:
    """What became of an arrival."""
    client = entry["client"]
    if entry["kind"] == "lost":
        strategy.lost(client, in_flight)
        return entry["outcome"]
    update = Update(
        client, entry["dispatch"], entry["base_version"], params, base, entry["num_examples"], entry["num_steps"]
    )
    with np.errstate(over="ignore"):  # absurd numbers are refused, not warned about
        orders = strategy.receive(update, in_flight)
    return f"refused: {orders.refused}" if orders.refused else "accepted"


def verify_replay(folder: Path, replayed: Replayed) -> None:
    """Raise a RecordError that names the first difference between a replay and the run's record."""
    from fedfa.record import read_run

    run = read_run(folder)
    rows = run.updates.select(Aggregated._fields).iter_rows()
    for number, (row, found) in enumerate(zip_longest(rows, replayed.arrivals)):
        if row is None or found is None or found != row:
            there = "nothing" if row is None else Aggregated(*row)
            raise RecordError(
                f"{folder}: arrival {number} is {found or 'nothing'} in the journal, {there} in the record"
            )
    if replayed.model_digest != run.manifest["model_digest"]:
        raise RecordError(
            f"{folder}: the journal ends in model {replayed.model_digest}, the record in {run.manifest['model_digest']}"
        )
