"""The convergence bound in words."""

from fedfa.report.bound import at_most


def test_limits_are_rounded_down() -> None:
    assert [at_most(x) for x in (0.0359, 0.1, 1.58, 29.9)] == ["0.035", "0.1", "1.5", "29"]
