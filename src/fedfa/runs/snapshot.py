"""The state of a run at one moment, in progress or finished; ``live.json`` holds one of these as JSON.

Lists of one dataclass are written column by column, so that the file has the names once and not in every row.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

Clock = Literal["virtual", "wall"]
State = Literal["running", "interrupted", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class About:
    """What a run is. Only the number of clients may grow, and only where they are real."""

    label: str
    seed: int
    strategy: dict[str, Any]
    task: str
    num_clients: int
    concurrency: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class PerSecond:
    """Accepted updates and versions per second."""

    updates: float
    versions: float


@dataclass(frozen=True, slots=True)
class Rates:
    """By the wall clock, and by the run's own."""

    wall: PerSecond
    clock: PerSecond


@dataclass(frozen=True, slots=True)
class InFlight:
    """A client that is training."""

    dispatch: int
    client: int
    started: float
    base_version: int


@dataclass(frozen=True, slots=True)
class RecentArrival:
    """One of the last answers."""

    dispatch: int
    client: int
    started: float
    seconds: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """The global model, evaluated."""

    updates: int
    seconds: float
    version: int
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Staleness:
    """Of accepted updates: a histogram with bins of ``width`` from 0 on, with their sum and maximum."""

    width: float
    counts: tuple[float, ...]
    sum: float
    max: float


@dataclass(frozen=True, slots=True)
class ArrivalsPerBin:
    """What happened in each span of ``width`` seconds of the run's clock, from its beginning on."""

    width: float
    accepted: tuple[float, ...]
    not_taken: tuple[float, ...]
    versions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all rows so far, and the last rows themselves."""

    arrivals: int
    outcomes: dict[str, int]
    """Arrivals by kind: accepted, refused, failed, lost."""
    reasons: dict[str, int]
    """Arrivals that were not accepted, by outcome; rare ones together."""
    bytes_up: int
    bytes_down: int
    evaluations: tuple[EvaluationPoint, ...]
    best_accuracy: float | None
    staleness: Staleness
    arrivals_per_bin: ArrivalsPerBin
    recent: tuple[RecentArrival, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    about: About
    state: State
    ended: str
    """Which limit ended it, or the error that did; empty while it runs."""
    written: float | None
    """In Unix time; None if it was made from the records of a finished run."""
    wall_seconds: float
    """How long it has been computed."""
    seconds: float
    """The run's own clock."""
    accepted: int
    version: int
    stop: dict[str, float]
    share_done: float
    rates: Rates
    in_flight: int
    longest: tuple[InFlight, ...]
    """Those in flight for the longest."""
    totals: Totals

    def to_json(self) -> str:
        return json.dumps(_encode(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Snapshot":
        """Raises a ValueError if the text is not a snapshot."""
        return _decode(cls, json.loads(text))


# JSON ----------------------------------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _row_type(hint: Any) -> Any:
    """The dataclass of a list of rows; None for any other annotation."""
    first = get_args(hint)[0] if get_origin(hint) is tuple else None
    return first if is_dataclass(first) else None


def _encode(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, hint in _hints(type(value)).items():
        item = getattr(value, name)
        if row := _row_type(hint):
            columns = list(_hints(row))
            cells = list(zip(*map(attrgetter(*columns), item), strict=True)) or [()] * len(columns)
            plain[name] = dict(zip(columns, cells, strict=True))
        else:
            plain[name] = _encode(item) if is_dataclass(hint) else item
    return plain


def _decode(hint: Any, value: Any) -> Any:
    origin, options = get_origin(hint), get_args(hint)
    if row := _row_type(hint):
        columns = (_decode(tuple[kind, ...], column) for kind, column in _typed(row, value))
        return tuple(row(*cells) for cells in zip(*columns, strict=True))
    if is_dataclass(hint):
        return hint(*(_decode(kind, item) for kind, item in _typed(hint, value)))  # pyright: ignore[reportCallIssue]
    if origin is tuple:
        return tuple(_decode(options[0], item) for item in _checked(list, value))
    if origin is dict:
        return {key: _decode(options[1], item) for key, item in _checked(dict, value).items()}
    if origin is UnionType:
        return None if value is None and NoneType in options else _decode(options[0], value)
    if origin is Literal:
        if value not in options:
            raise ValueError(f"not a snapshot: {value!r} is not one of {', '.join(options)}")
        return value
    return value if hint is Any else _checked((int, float) if hint is float else hint, value)


def _typed(kind: Any, table: Any) -> list[tuple[Any, Any]]:
    """Type and value of each field."""
    hints = _hints(kind)
    if lacking := hints.keys() - _checked(dict, table).keys():
        raise ValueError(f"not a snapshot: {', '.join(sorted(lacking))} is missing")
    return [(hint, table[name]) for name, hint in hints.items()]


def _checked(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"not a snapshot: {str(value)[:60]} is of the wrong type")
    return value
