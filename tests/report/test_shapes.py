"""Colours."""

from fedfa.report.shapes import PALETTE, colours


def test_colours_are_stable_and_distinct() -> None:
    names = ["fedavg", "fedfa-param", "mine", "yours"]
    chosen = colours(names)
    assert chosen == colours(reversed(names))
    assert len(set(chosen.values())) == 4
    assert chosen["fedfa-param"] == colours(["fedfa-param"])["fedfa-param"]
    assert set(colours(f"s{i}" for i in range(25)).values()) == set(PALETTE)
