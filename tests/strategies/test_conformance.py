"""The conformance vectors, for this package and for the naive rules."""

from typing import Any

import numpy as np
import pytest

from fedfa.strategies.conformance import cases, replay_case
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.reference import reference_replay


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_conformance_vectors_hold_for_the_package_and_for_the_naive_rules(case: Any) -> None:
    ours = replay_case(case)
    np.testing.assert_allclose(np.array(ours), np.array(case.models), atol=2e-6)
    assert ours.versions == case.versions
    assert sorted(ours.refused) == case.refused
    naive = reference_replay(case.strategy, case.parameters, case.initial_model, case.arrivals, case.num_trainable)
    np.testing.assert_allclose(np.array(naive), np.array(case.models), atol=2e-6)


def test_conformance_covers_every_strategy() -> None:
    assert {case.strategy for case in cases()} == set(STRATEGIES)
