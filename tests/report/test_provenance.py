"""What the page says about settings."""

from fedfa.report.provenance import shared


def test_shared_settings() -> None:
    a = {"seed": 1, "task": {"lr": 0.1, "data": "x"}, "strategy": {"name": "a"}}
    b = {"seed": 2, "task": {"lr": 0.1, "data": "y"}, "strategy": {"name": "b"}}
    assert shared([a, b]) == {"task": {"lr": 0.1}}
    assert shared([a]) == a
