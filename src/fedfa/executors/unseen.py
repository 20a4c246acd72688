"""What a recording cannot see: ways in which a model decides in Python what its next step does.

Such a model must not be captured, even if its first steps come out the same.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn
from torch.overrides import TorchFunctionMode

from fedfa.executors.capture import CannotCapture

_READS = {"tolist", "numpy", "__array__", "__dlpack__", "storage", "untyped_storage", "_pack_padded_sequence"}
"""Functions of torch that look at values without an operation that a recording would see."""


class _Reading(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := getattr(func, "__name__", "")) in _READS:
            raise CannotCapture(f"{name} reads the values of a tensor")
        return func(*args, **(kwargs or {}))


@contextmanager
def nothing_unseen(module: nn.Module) -> Iterator[None]:
    """Raises CannotCapture if what runs within depends on more than tensors, or would do otherwise the next time."""
    before = _outside(module)
    with _Reading():
        yield
    if _outside(module) != before:
        raise CannotCapture("it keeps count in Python, or draws from Python's or NumPy's generator")


def structure(module: nn.Module) -> Any:
    """The classes of a model's parts, and their plain settings: two models with the same tensors and the same structure
    compute the same, but for what classes keep elsewhere."""
    return [
        (name, type(part), [entry for entry in sorted(vars(part).items()) if _is_plain(entry[1])])
        for name, part in module.named_modules()
    ]


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _outside(module: nn.Module) -> Any:
    """What Python code may remember between two steps."""
    kind, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    return structure(module), random.getstate(), kind, np.asarray(keys).tobytes(), position
