"""The splits that benchmarks/peers.py gives to all simulators."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.scripts import loaded

JOB = Path(__file__).parents[2] / "benchmarks" / "peers" / "job.py"
EXAMPLES = 1438


@pytest.fixture(scope="module")
def job() -> Any:
    return loaded(JOB)


def test_sizes_are_equal_or_from_9_to_64(job: Any) -> None:
    assert set(job.sizes_of("equal", EXAMPLES, np.random.default_rng(0))) == {28}
    for seed in range(20):
        sizes = job.sizes_of("unequal", EXAMPLES, np.random.default_rng(seed))
        assert sizes.min() >= 9
        assert sizes.max() <= 64
        assert len(set(sizes)) > 10
        assert sizes.sum() <= EXAMPLES


def test_every_client_has_its_number_of_examples_and_few_labels(job: Any) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, EXAMPLES)
    sizes = job.sizes_of("unequal", EXAMPLES, generator)
    order = job.parts_of(labels, sizes, generator)
    assert len(order) == sizes.sum() == len(set(order.tolist()))
    parts = np.split(labels[order], np.cumsum(sizes)[:-1])
    largest = [np.bincount(part).max() / len(part) for part in parts]
    assert np.mean(largest) > 0.3  # a client's labels are skewed: one in ten would be even
