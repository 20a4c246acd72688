"""A run that survives a crash: the engine's whole state in one file, without pickle.

The checkpoint holds everything the next arrival depends on: clock, heap, who is in flight from which model, the
strategy's window, the generator that draws clients, results already computed, and the rows so far. It may be
written between any two arrivals; a run continued from it takes the very same course. What a deployment saves beyond
that is in :mod:`fedfa.deployment`.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from heapq import heapify
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedfa.errors import ConfigError, RecordError
from fedfa.executors.base import Trained
from fedfa.place import CPU, Place, as_array
from fedfa.record import CHECKPOINT, atomic
from fedfa.weather import Delay

if TYPE_CHECKING:
    from fedfa.deployment import Deployment
    from fedfa.engine import Simulation

FORMAT = 3
"""Raised whenever what a checkpoint holds changes."""
_COMMON = ("now", "accepted", "fruitless", "dispatches", "unfilled", "sound_at")


def fingerprint(engine: "Simulation") -> str:
    """What must not change between a run and its continuation."""
    return hashed(engine.made_with() | {"seed": engine.seed, "digest": engine.digest})


def hashed(settings: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def check_same(engine: "Simulation | Deployment", fingerprint: str) -> None:
    """Raise unless what is to be continued was started with the same settings."""
    if fingerprint != engine.fingerprint:
        raise RecordError(f"{engine.folder}: was started with other settings; resume with the same ones")


def save(engine: "Simulation", wall_seconds: float) -> None:
    """Write the checkpoint, if the run has a folder."""
    if engine.folder is None:
        return
    state = common_state(engine, "wake_at") | {
        "earlier_wall": wall_seconds,
        "heap": engine.heap,
        "counts": _as_array(engine.counts),
        "idle_count": engine.idle.count,
        "idle_moved": _as_array(engine.idle.moved),
        "finished": {dispatch: done.state_dict() for dispatch, done in engine.executor.finished().items()},
    }
    write_tree(engine.folder / CHECKPOINT, state)


def load(engine: "Simulation") -> bool:
    """Continue from the folder's checkpoint; False where there is none and the run starts anew."""
    from fedfa.engine import OnTheWay

    if engine.folder is None:
        raise ConfigError("resume: needs the folder of the run to continue (out)")
    path = engine.folder / CHECKPOINT
    if not path.exists():
        return False
    state = read_tree(path, engine.place)
    flights = restore_common(engine, state, "wake_at", "earlier_wall")
    engine.heap = [tuple(entry) for entry in state["heap"]]
    heapify(engine.heap)
    engine.counts = _as_dict(state["counts"])
    engine.idle.count, engine.idle.moved = state["idle_count"], _as_dict(state["idle_moved"])
    for saved in flights:
        delay = Delay(*saved.pop("delay"))
        flight = OnTheWay(**saved, delay=delay)
        engine.in_flight[flight.client] = flight
        if not delay.lost:
            engine.executor.submit(flight)
    engine.executor.restore({dispatch: Trained(**done) for dispatch, done in state["finished"].items()})
    return True


def common_state(engine: "Simulation | Deployment", *more: str) -> dict[str, Any]:
    """What either engine saves of itself, with the attributes of these names."""
    flights = engine.in_flight.values()
    return {name: getattr(engine, name) for name in (*_COMMON, *more)} | {
        "fingerprint": engine.fingerprint,
        "last_score": engine.last_score,
        "flights": [_without_base(flight) for flight in flights],
        "bases": {flight.base_version: flight.base for flight in flights},
        "random": engine.random.getstate(),
        "strategy": engine.strategy.state_dict(),
        "record": engine.record.state_dict(),
    }


def restore_common(engine: "Simulation | Deployment", state: Mapping[str, Any], *more: str) -> list[dict[str, Any]]:
    """The counterpart; returns the fields of what was in flight."""
    check_same(engine, state["fingerprint"])
    for name in (*_COMMON, *more):
        setattr(engine, name, state[name])
    engine.last_score = tuple(state["last_score"])
    kind, numbers, gauss = state["random"]
    engine.random.setstate((kind, tuple(numbers), gauss))
    engine.strategy.load_state_dict(state["strategy"])
    engine.record.load_state_dict(state["record"])
    return [saved | {"base": state["bases"][saved["base_version"]]} for saved in state["flights"]]


def write_tree(path: Path, state: Mapping[str, Any]) -> None:
    """Plain values as JSON, arrays beside them, each once however many places hold it."""
    arrays: list[np.ndarray] = []
    places: dict[int, int] = {}

    def place_of(value: Any) -> int:
        if id(value) not in places:
            arrays.append(as_array(value) if isinstance(value, Tensor) else value)
            places[id(value)] = len(arrays) - 1
        return places[id(value)]

    def encode(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"$array": place_of(value)}
        if isinstance(value, Tensor):
            return {"$vector": place_of(value)}
        if isinstance(value, Mapping):
            return {"$items": [[encode(key), encode(item)] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            return [encode(item) for item in value]
        if isinstance(value, set | frozenset):
            return {"$set": [encode(item) for item in sorted(value, key=repr)]}
        return value.item() if isinstance(value, np.generic) else value

    text = json.dumps({"format": FORMAT, "state": encode(state)})
    with atomic(path) as file:
        named: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
        np.savez(file, tree=np.frombuffer(text.encode(), np.uint8), **named)


def read_tree(path: Path, place: Place = CPU) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: cannot be read ({error}); start the run again in a new folder") from error

    def decode(value: Any) -> Any:
        if isinstance(value, dict):
            if "$array" in value:
                return arrays[f"a{value['$array']}"]
            if "$vector" in value:
                return place.vector(arrays[f"a{value['$vector']}"])
            if "$set" in value:
                return set(map(decode, value["$set"]))
            return {decode(key): decode(item) for key, item in value["$items"]}
        return [decode(item) for item in value] if isinstance(value, list) else value

    tree = json.loads(arrays["tree"].tobytes())
    if tree.get("format") != FORMAT:
        raise RecordError(f"{path}: was written by another version of fedfa; go on with that one, or in a new folder")
    return decode(tree["state"])


def _without_base(flight: Any) -> dict[str, Any]:
    """A flight's values, but for the model it started from, which others may share."""
    return {field.name: getattr(flight, field.name) for field in fields(flight) if field.name != "base"}


def _as_array(numbers: dict[int, int]) -> np.ndarray:
    return np.array(list(numbers.items()), np.int64).reshape(-1, 2)


def _as_dict(array: np.ndarray) -> dict[int, int]:
    return {int(key): int(value) for key, value in array}
