"""Every strategy against the naive rules of ``tests.helpers.reference``, on drawn streams."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfa import Arrival, replay
from fedfa.strategies.base import Strategy
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.arrivals import small
from tests.helpers.reference import reference_replay

finite = st.floats(-100, 100, width=32)


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[int, int, list[float], int, int]]:
    """Clients, how far back the base lies, results, examples and steps."""
    one = st.tuples(
        st.integers(0, 5),
        st.integers(0, 4),
        st.lists(finite, min_size=3, max_size=3),
        st.integers(1, 50),
        st.integers(1, 9),
    )
    return draw(st.lists(one, min_size=1, max_size=25))


def stream_for(
    strategy: Strategy, raw: list[tuple[int, int, list[float], int, int]], start: np.ndarray
) -> list[Arrival]:
    """Bases that exist by the time of the arrival."""
    made: list[Arrival] = []
    for client, back, values, examples, steps in raw:
        versions = replay(strategy, start, made).versions
        base = max(0, (versions[-1] if versions else 0) - back)
        made.append(
            Arrival(
                client=client,
                base_version=base,
                params=np.array(values, np.float32),
                num_examples=examples,
                num_steps=steps,
            )
        )
    return made


@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
@settings(max_examples=15, deadline=None)
@given(raw=streams())
def test_any_stream_gives_the_models_of_the_naive_rule(cls: type[Strategy], raw: Any) -> None:
    strategy = small(cls)
    start = np.array([0.5, -1.0, 2.0], np.float32)
    stream = stream_for(strategy, raw, start)
    models = replay(strategy, start, stream)
    plain = [
        {
            "client": a.client,
            "base_version": a.base_version,
            "params": a.params.tolist(),
            "num_examples": a.num_examples,
            "num_steps": a.num_steps,
        }
        for a in stream
    ]
    sizes = {"concurrency": 3, "window": 2, "buffer": 2}
    parameters = {key: value for key, value in sizes.items() if key in {f.name for f in fields(cls)}}
    expected = reference_replay(cls.name, parameters, start.tolist(), plain, 3)
    np.testing.assert_allclose(np.array(models), np.array(expected), rtol=1e-4, atol=2e-3)
    assert np.isfinite(np.array(models)).all()
    assert all(0 <= later - earlier <= 1 for earlier, later in zip(models.versions, models.versions[1:], strict=False))
