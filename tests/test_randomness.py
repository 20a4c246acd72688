"""Random numbers that depend on nothing but their keys."""

from itertools import pairwise
from statistics import mean

import pytest

from fedfa.randomness import keyed, uniform


def test_draws_are_uniform_and_keyed() -> None:
    draws = [uniform(keyed(7, 1), client) for client in range(20_000)]
    assert all(0 < u < 1 for u in draws)
    assert mean(draws) == pytest.approx(0.5, abs=0.01)
    assert mean((a - 0.5) * (b - 0.5) for a, b in pairwise(draws)) == pytest.approx(0, abs=0.002)
    assert (
        len(
            {
                keyed(seed, stream, c, n)
                for seed in range(5)
                for stream in range(5)
                for c in range(20)
                for n in range(20)
            }
        )
        == 10_000
    )
    assert keyed(1, 2, 3) == keyed(1, 2, 3)
    assert all(int(uniform(9, key) * 2**20) == keyed(9, key) >> 44 for key in range(100))
