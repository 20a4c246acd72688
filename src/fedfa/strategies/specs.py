"""Strategies by name: ``fedbuff``, ``fedbuff:buffer=3``, ``my_file.py:MyStrategy``, or a table of settings."""

import inspect
from dataclasses import fields
from typing import Any

from fedfa.errors import ConfigError, require
from fedfa.settings import build, load_object, parse_override, suggest
from fedfa.strategies.base import Strategy
from fedfa.strategies.registry import STRATEGIES


def strategy_from(spec: str) -> Strategy:
    """The strategy that ``name:key=value:...`` names."""
    return make_strategy(strategy_settings({}, spec, "strategy"), "strategy")


def strategy_settings(shared: dict[str, Any], spec: str, where: str = "strategies") -> dict[str, Any]:
    """The settings of ``name:key=value:...``: the experiment's own where the strategy has them, then the spec's."""
    name, *assignments = split_spec(spec)
    known = parameters(name, where)
    settings = {"name": name} | {key: value for key, value in shared.items() if key in known}
    for assignment in assignments:
        require("=" in assignment, f"{spec}: {assignment!r} must look like KEY=VALUE")
        path, value = parse_override(assignment)
        settings[".".join(path)] = value
    return settings


def split_spec(spec: str) -> list[str]:
    """``name:key=value`` in parts; a name may contain a colon (``file.py:Class``)."""
    parts = spec.split(":")
    head = 2 if len(parts) > 1 and "=" not in parts[1] else 1
    return [":".join(parts[:head]), *parts[head:]]


def make_strategy(table: dict[str, Any], where: str) -> Strategy:
    """A strategy from its name (or ``file.py:Class``) and settings."""
    settings = dict(table)
    return build(strategy_class(settings.pop("name", ""), f"{where}.name"), settings, where)


def strategy_class(name: Any, where: str) -> type[Strategy]:
    if isinstance(name, str) and ":" in name:
        known, _, rest = name.partition(":")
        require(known not in STRATEGIES, f"{where} = {name!r}: {rest!r} must look like KEY=VALUE")
        cls = load_object(name, where)
        require(isinstance(cls, type) and issubclass(cls, Strategy), f"{where} = {name!r}: is not a fedfa.Strategy")
        require(not inspect.isabstract(cls), f"{where} = {name!r}: does not define aggregate(update, in_flight)")
        return cls
    if not isinstance(name, str) or name not in STRATEGIES:
        own = "; a class of your own is named file.py:Class"
        raise ConfigError(f"{where} = {name!r}: {suggest(name, STRATEGIES, 'must be one of')}{own}")
    return STRATEGIES[name]


def parameters(name: Any, where: str) -> set[str]:
    """The settings that a strategy has, by its name or ``file.py:Class``."""
    return {f.name for f in fields(strategy_class(name, where)) if f.init}
