"""The rows of a run."""

import numpy as np
import pytest

import fedfa
from fedfa.runs.recorder import Outcome, Table


def test_the_record_holds_the_steps_that_were_taken() -> None:
    """Steps that a rule chooses: none before its first, then between 1 and 2. Fixed steps as they are."""
    steps = {
        name: fedfa.simulate(strategy, stop={"updates": 60}).evaluations["step"].to_numpy()
        for name, strategy in {
            "param": fedfa.FedFaParam(),
            "by agreement": fedfa.FedFaAgree(),
            "fixed": fedfa.FedFaDelta(server_lr=0.2),
            "nova": fedfa.FedFaNova(server_lr=0.3),
        }.items()
    }
    assert np.isnan(steps["param"]).all()
    assert all(np.isnan(steps[name][0]) for name in steps)
    assert steps["by agreement"][1:].min() >= 1.0
    assert 1.0 < steps["by agreement"][1:].max() <= 2.0
    assert set(steps["fixed"][1:]) == {0.2}
    assert set(steps["nova"][1:]) == {0.3}


def test_rows_since_a_position() -> None:
    table = Table({"a": float, "b": float})
    for number in range(1000):
        table.append((number, -number))
        if number in (300, 301, 700):
            table.pack_if_due(rows=1)
        if number % 97 == 0:
            for start in (0, 1, 250, 301, 302, number - 1, number, number + 1, number + 5):
                rows = np.concatenate([np.empty((0, 2)), *table.since(max(0, start))])
                assert rows[:, 0].tolist() == list(range(max(0, start), number + 1))
    assert table.array()[:, 1].tolist() == [-n for n in range(1000)]


@pytest.mark.parametrize(
    ("outcome", "parts"),
    [
        ("accepted", ("accepted", "")),
        ("refused: not finite", ("refused", "not finite")),
        ("failed: KeyError: 'a: b'", ("failed", "KeyError: 'a: b'")),
        ("lost", ("lost", "")),
    ],
)
def test_outcomes_have_a_kind_and_a_reason(outcome: str, parts: tuple[str, str]) -> None:
    assert Outcome.parse(outcome) == parts
