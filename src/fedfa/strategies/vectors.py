"""Arithmetic on flat model vectors that stays O(d), exact enough, and near memory speed.

Vectors are numpy arrays or torch tensors. Only operators, slices and slice assignment are used, so both work
unchanged and nothing here imports torch. Several threads process long vectors in blocks that fit a core's cache:
numpy and torch release the interpreter lock, and the order of element-wise work does not matter. On a GPU a vector
is one block.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np

Vector = Any
"""A flat numpy array or torch tensor; a union type would forbid the operators that both have."""

BLOCK = 1 << 16
_THREADED_FROM = 1 << 20
_THREADS = min(4, os.cpu_count() or 1)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="fedfa-vectors")


def _in_one_go(vector: Vector) -> bool:
    """Short, or on a GPU: not worth cutting up."""
    return vector.shape[0] <= BLOCK or not (isinstance(vector, np.ndarray) or vector.device.type == "cpu")


def over_blocks(vector: Vector, work: Callable[[int, int], Any]) -> list[Any]:
    """Call ``work(low, high)`` for consecutive blocks of a vector; results in block order."""
    length = vector.shape[0]
    if _in_one_go(vector):
        return [work(0, length)]
    blocks = [(low, min(low + BLOCK, length)) for low in range(0, length, BLOCK)]
    if length < _THREADED_FROM or _THREADS == 1:
        return [work(low, high) for low, high in blocks]
    share = math.ceil(len(blocks) / _THREADS)
    parts = [blocks[i : i + share] for i in range(0, len(blocks), share)]
    done = _pool().map(lambda part: [work(low, high) for low, high in part], parts)
    return [result for part in done for result in part]


class _Resting:
    """Memory of long vectors that are no longer in use, kept for the next ones.

    An allocator returns such memory to the system at once. Each new vector would then get zeroed pages from the
    system, at each arrival, and that takes longer than computing the vector.
    """

    FROM, MOST = 1 << 25, 3  # bytes; vectors

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def vector(self, like: np.ndarray) -> np.ndarray:
        try:
            memory = self._free.pop()
        except IndexError:
            memory = None
        if memory is None or memory.nbytes != like.nbytes:  # the latter is left over from another model
            memory = np.empty(like.nbytes, np.uint8).data
        vector = np.frombuffer(memory, like.dtype)  # views and tensors of it keep it alive, so it ends last
        finalize(vector, self._rest, memory).atexit = False
        return vector

    def _rest(self, memory: memoryview) -> None:
        if len(self._free) < self.MOST:
            self._free.append(memory)


_resting = _Resting()


def new_like(vector: Vector) -> Vector:
    """An uninitialised vector of the same length, precision and device."""
    if not isinstance(vector, np.ndarray):
        return vector.new_empty(vector.shape)
    return np.empty_like(vector) if vector.nbytes < _Resting.FROM else _resting.vector(vector)


def zeros64(vector: Vector) -> Vector:
    """A float64 zero vector of the same length on the same device, for sums."""
    return np.zeros(vector.shape, np.float64) if isinstance(vector, np.ndarray) else vector.double().zero_()


def cast(vector: Vector, dtype: Any) -> Vector:
    """The vector in another precision."""
    return vector.astype(dtype) if isinstance(vector, np.ndarray) else vector.to(dtype)


def difference(a: Vector, b: Vector) -> Vector:
    """``a - b``."""
    if _in_one_go(a):
        return a - b
    out = new_like(a)

    def work(low: int, high: int) -> None:
        here = out[low:high]
        here[:] = a[low:high]
        here -= b[low:high]

    over_blocks(a, work)
    return out


def distance(a: Vector, b: Vector) -> float:
    """Euclidean norm of ``a - b``; not finite if and only if the difference has an entry that is not."""
    if a.shape[0] <= BLOCK:
        difference = a - b
        total = float(difference.dot(difference))
    else:

        def squares(low: int, high: int) -> float:
            difference = a[low:high] - b[low:high]
            return float(difference.dot(difference))

        total = sum(over_blocks(a, squares))
    if not math.isfinite(total):  # finite float32 entries above 1e19 overflow when squared: look again
        difference = zeros64(a) + a - b
        total = float(difference.dot(difference))
    return math.sqrt(total)


def cosine(a: Vector, b: Vector) -> float:
    """Cosine of the angle between two vectors; 0 where one of them is zero."""
    scale = math.sqrt(float(a.dot(a))) * math.sqrt(float(b.dot(b)))
    return max(-1.0, min(1.0, float(a.dot(b)) / scale)) if scale > 0 else 0.0


def blend(a: Vector, b: Vector, weight_b: float) -> Vector:
    """``(1 - weight_b) a + weight_b b``."""
    out = new_like(a)

    def work(low: int, high: int) -> None:
        here = out[low:high]  # in place: every temporary block would need fresh memory
        here[:] = a[low:high]
        here *= 1.0 - weight_b
        here += b[low:high] * weight_b

    over_blocks(a, work)
    return out


def with_tail(head: Vector, tail_of: Vector, split: int) -> Vector:
    """``head`` whose entries from ``split`` on are replaced by those of ``tail_of`` (in place)."""
    if split < head.shape[0]:
        head[split:] = tail_of[split:]
    return head


@dataclass(slots=True)
class Summand:
    """One summand: the part before ``split`` counts ``head_weight`` times, the part after it ``weight`` times."""

    vector: Vector
    weight: float = 1.0
    head_weight: float = 1.0
    scalar: float = 0.0
    """A number that belongs to the vector; the sum keeps its mean."""
    client: int = -1


_NOTHING = Summand(None, 0.0, 0.0)


class Sum:
    """A float64 sum of weighted vectors: adding and reading are O(d) for any number of summands.

    Entries up to ``split`` are trainable parameters, the rest are buffers such as BatchNorm statistics. The two
    parts may carry different weights, because rules that add up *differences* must still *average* the buffers.
    """

    def __init__(self, like: Vector, split: int) -> None:
        self.split = split
        self._zero = like
        self._small = like.shape[0] <= BLOCK
        self.total = zeros64(like)
        self.clear()

    def clear(self) -> None:
        self.total[:] = 0.0
        self.count = 0
        self.weight = 0.0
        self._scalars = 0.0

    def add(self, entry: Summand) -> None:
        self.count += 1
        self._move(entry, _NOTHING)

    def mean(self) -> Vector:
        """The weighted mean, in the model's own precision."""
        if self._small:
            return cast(self.total / self.weight, self._zero.dtype)
        out = new_like(self._zero)

        def work(low: int, high: int) -> None:
            out[low:high] = self.total[low:high] / self.weight

        over_blocks(out, work)
        return out

    @property
    def mean_scalar(self) -> float:
        return self._scalars / self.weight

    def step_from(self, model: Vector, scale: float) -> Vector:
        """``model + scale * sum`` for the parameters, the mean for the buffers."""
        if self._small and self.split == model.shape[0]:
            return cast(self.total * scale + model, model.dtype)
        out = new_like(model)

        def work(low: int, high: int) -> None:
            out[low:high] = self.total[low:high] * scale + model[low:high]

        over_blocks(out, work)
        if self.split < out.shape[0]:
            out[self.split :] = self.total[self.split :] / self.weight
        return out

    def state_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "count": self.count,
            "weight": self.weight,
            "scalars": self._scalars,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total = state["total"]
        self.count, self.weight = state["count"], state["weight"]
        self._scalars = state["scalars"]

    def _move(self, new: Summand, old: Summand) -> None:
        """Take one entry in and another out."""
        self.weight += new.weight - old.weight
        self._scalars += new.weight * new.scalar - old.weight * old.scalar
        total, split, length = self.total, self.split, self.total.shape[0]
        if self._small and split == length:  # the common case in large simulations, without slices
            total += _scaled(new.vector, new.head_weight)
            if old.vector is not None:
                total -= _scaled(old.vector, old.head_weight)
        else:
            _shift(total, new.vector, new.head_weight, old.vector, old.head_weight, 0, split)
            _shift(total, new.vector, new.weight, old.vector, old.weight, split, length)


class Window(Sum):
    """The sum of the last ``size`` entries.

    A new entry costs one pass for any size: the sum changes by (new - dropped). To stop rounding errors from
    accumulating, every arrival also re-adds a quarter of a vector's worth of entries, block by block: after
    4 x size arrivals the whole sum has been rebuilt.
    """

    def __init__(self, like: Vector, split: int, size: int, one_slot_per_client: bool = False) -> None:
        self.size = size
        self.one_slot_per_client = one_slot_per_client
        super().__init__(like, split)

    def clear(self) -> None:
        super().clear()
        self.entries: deque[Summand] = deque()
        self._credit = self._next_block = 0
        length = self._zero.shape[0]
        self._income, self._price = max(1, length // 4), self.size * min(BLOCK, length)

    def add(self, entry: Summand) -> None:
        entries = self.entries
        dropped = self._older_of(entry.client) if self.one_slot_per_client else None
        if dropped is None and len(entries) == self.size:
            dropped = entries.popleft()
        entries.append(entry)
        if dropped is None:
            dropped = _NOTHING
            self.count += 1
        if self._small:  # adding mixed precisions costs twice: short vectors are kept as the sum is
            entry.vector = cast(entry.vector, self.total.dtype)
        self._move(entry, dropped)
        self._credit += self._income
        if self._credit >= self._price:
            self._renew()

    def _older_of(self, client: int) -> Summand | None:
        """Remove and return this client's entry."""
        for position, older in enumerate(self.entries):
            if older.client == client:
                del self.entries[position]
                return older
        return None

    def _renew(self) -> None:
        """Rebuild the next blocks of the sum from the entries, as many as the credit covers."""
        length = self.total.shape[0]
        while self._credit >= self._price:
            self._credit -= self._price
            low = self._next_block
            high = min(low + BLOCK, length)
            fresh = zeros64(self.total[low:high])
            cut = min(max(self.split - low, 0), high - low)
            for entry in self.entries:
                fresh[:cut] += _scaled(entry.vector[low : low + cut], entry.head_weight)
                fresh[cut:] += _scaled(entry.vector[low + cut : high], entry.weight)
            self.total[low:high] = fresh
            self._next_block = 0 if high == length else high
        self.weight = math.fsum(entry.weight for entry in self.entries)
        self._scalars = math.fsum(entry.weight * entry.scalar for entry in self.entries)

    def state_dict(self) -> dict[str, Any]:
        names = [f.name for f in fields(Summand)]
        entries = [{name: getattr(entry, name) for name in names} for entry in self.entries]
        return super().state_dict() | {"entries": entries, "credit": self._credit, "next_block": self._next_block}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.entries = deque(Summand(**entry) for entry in state["entries"])
        self._credit, self._next_block = state["credit"], state["next_block"]


def _scaled(vector: Vector, weight: float) -> Vector:
    return vector if weight == 1.0 else vector * weight


def _shift(
    total: Vector, new: Vector, weight: float, old: Vector | None, old_weight: float, start: int, stop: int
) -> None:
    """``total += weight * new - old_weight * old`` on a range, in one pass through memory.

    Both are added to the float64 sum one after the other: their difference in float32 would lose a small new value
    next to a large old one.
    """

    part, gain = total[start:stop], new[start:stop]
    loss = None if old is None else old[start:stop]

    def work(low: int, high: int) -> None:
        here = part[low:high]
        here += _scaled(gain[low:high], weight)
        if loss is not None:
            here -= _scaled(loss[low:high], old_weight)

    over_blocks(part, work)
