"""All strategies with their papers and parameters, read from the classes themselves."""

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from fedfa.settings import meanings
from fedfa.strategies.registry import STRATEGIES

if TYPE_CHECKING:
    pass


def catalogue() -> list[dict[str, Any]]:
    """One entry per strategy, JSON-ready."""
    return [
        {
            "name": strategy.name,
            "class": strategy.__name__,
            "paper": strategy.paper,
            "summary": inspect.getdoc(strategy).splitlines()[0],  # pyright: ignore[reportOptionalMemberAccess]
            "synchronous": strategy.synchronous,
            "parameters": [
                {"name": f.name, "default": f.default, "meaning": meanings(strategy).get(f.name, "")}
                for f in fields(strategy)
                if f.init and f.default is not MISSING
            ],
        }
        for strategy in STRATEGIES.values()
    ]
