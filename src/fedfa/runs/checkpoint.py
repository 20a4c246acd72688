"""Checkpoints: nested plain values and arrays in one file, without pickle."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedfa.errors import RecordError
from fedfa.files import atomic
from fedfa.learning.device import CPU, Device, as_array

FORMAT = 4
"""Increased whenever the content of a checkpoint changes."""


def hashed(settings: Mapping[str, Any]) -> str:
    """A fingerprint of JSON-ready settings."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def write_tree(path: Path, state: Mapping[str, Any]) -> None:
    """Plain values as JSON, arrays beside them; a shared array is stored once."""
    arrays: list[np.ndarray] = []
    numbers: dict[int, int] = {}

    def number_of(value: Any) -> int:
        if id(value) not in numbers:
            arrays.append(as_array(value) if isinstance(value, Tensor) else value)
            numbers[id(value)] = len(arrays) - 1
        return numbers[id(value)]

    def encode(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"$array": number_of(value)}
        if isinstance(value, Tensor):
            return {"$vector": number_of(value)}
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


def read_tree(path: Path, device: Device = CPU) -> dict[str, Any]:
    """Read what ``write_tree`` wrote; vectors go to this device."""
    arrays = _arrays(path)

    def decode(value: Any) -> Any:
        if isinstance(value, dict):
            if "$array" in value:
                return arrays[f"a{value['$array']}"]
            if "$vector" in value:
                return device.vector(arrays[f"a{value['$vector']}"])
            if "$set" in value:
                return set(map(decode, value["$set"]))
            return {decode(key): decode(item) for key, item in value["$items"]}
        return [decode(item) for item in value] if isinstance(value, list) else value

    return decode(_tree(path, arrays["tree"]))


def read_plain(path: Path, key: str) -> Any:
    """One plain value of it, without reading its arrays."""
    state = _tree(path, _arrays(path, "tree")["tree"])
    return dict(state["$items"]).get(key)


def _arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    """The arrays of these names, or all."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names or file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: cannot be read ({error}); start the run again in a new folder") from error


def _tree(path: Path, array: np.ndarray) -> Any:
    tree = json.loads(array.tobytes())
    if tree.get("format") != FORMAT:
        raise RecordError(f"{path}: was written by another version of fedfa; go on with that one, or in a new folder")
    return tree["state"]
