"""The names that ``import fedfa`` offers."""

import inspect
from typing import get_args

import pytest

import fedfa
import fedfa.errors
from fedfa.strategies.registry import STRATEGIES
from fedfa.strategies.staleness import Staleness


def test_public_names_are_there_and_nothing_else() -> None:
    """What is exported is what the documentation may name: classes and functions that are defined in the package."""
    listed = set(fedfa.__all__) - {"__version__"}
    assert listed <= set(dir(fedfa))
    for name in listed:
        found = getattr(fedfa, name)
        assert found.__name__ == name
        assert found.__module__.startswith("fedfa.")
        assert inspect.getdoc(found), f"{name} has no docstring"
    strategies = {cls.__name__ for cls in STRATEGIES.values()}
    staleness = {cls.__name__ for cls in get_args(Staleness) if inspect.isclass(cls)}
    errors = {name for name, cls in vars(fedfa.errors).items() if inspect.isclass(cls) and name in listed}
    assert strategies | staleness | errors <= listed
    with pytest.raises(AttributeError, match="module 'fedfa' has no attribute 'nothing'"):
        fedfa.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
