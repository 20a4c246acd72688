"""Streams of arrivals, written by hand or drawn, and strategies small enough for them."""

from dataclasses import fields
from typing import Any

import numpy as np

from fedfa import Arrival
from fedfa.strategies.base import Strategy


def arrival(client: int, base: int, *params: float, n: int = 1, steps: float = 1) -> Arrival:
    values = np.array(params, np.float32)
    return Arrival(client=client, base_version=base, params=values, num_examples=n, num_steps=steps)


def small(cls: type[Strategy], **settings: Any) -> Strategy:
    """The strategy at a size that publishes within a few arrivals."""
    names = {f.name for f in fields(cls)}
    sizes = {"concurrency": 3, "window": 2, "buffer": 2}
    return cls(**{key: value for key, value in (sizes | settings).items() if key in names})


def close(models: list[np.ndarray], expected: list[list[float]], atol: float = 1e-6) -> None:
    np.testing.assert_allclose(np.array(models), np.array(expected), atol=atol)


START = np.linspace(-1, 1, 6, dtype=np.float32)


def random_stream(
    count: int, per_version: int, seed: int = 0, fresh: bool = False, same_n: bool = True
) -> list[Arrival]:
    """Results whose bases exist when every ``per_version``-th arrival publishes."""
    rng = np.random.default_rng(seed)
    stream = []
    for i in range(count):
        version = i // per_version
        base = version if fresh else max(0, version - int(rng.integers(0, 3)))
        n = 4 if same_n else int(rng.integers(1, 9))
        values = rng.normal(size=6).astype(np.float32)
        stream.append(Arrival(client=i, base_version=base, params=values, num_examples=n, num_steps=5))
    return stream
