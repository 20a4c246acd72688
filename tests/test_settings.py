"""Settings from text and tables."""

from typing import Any

import pytest

from fedfa.settings import parse_override


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("strategy.window=10", ["strategy", "window"], 10),
        ("name=fast run", ["name"], "fast run"),
        ("local.lr = 0.5", ["local", "lr"], 0.5),
        ("a=true", ["a"], True),
        ("compare.seeds=[1, 2]", ["compare", "seeds"], [1, 2]),
        ('weather.speed={kind="constant", value=2.0}', ["weather", "speed"], {"kind": "constant", "value": 2.0}),
        ("stop.seconds=none", ["stop", "seconds"], None),
    ],
)
def test_overrides_are_parsed(text: str, path: list[str], value: Any) -> None:
    assert parse_override(text) == (path, value)
