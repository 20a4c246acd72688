"""Staleness functions."""

import pytest

import fedfa


@pytest.mark.parametrize(("tau", "weight"), [(0, 1.0), (4, 1.0), (5, 1 / 11), (6, 1 / 21)])
def test_the_hinge_function(tau: int, weight: float) -> None:
    assert fedfa.HingeStaleness(a=10, b=4)(tau) == pytest.approx(weight)
