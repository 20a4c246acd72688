"""Every error a user can meet, in one tree. A message names what was wrong, the value seen and the remedy.

FedfaError
├── ConfigError     a setting, a file or an argument is wrong; nothing was written
│   └── UnknownKey  a setting that does not exist
├── RecordError     a run folder cannot be used as asked (taken, unfinished, damaged)
└── EngineError     a run cannot go on (nothing left to do, a strategy that returns nonsense)
"""

from typing import Any, Self


class FedfaError(Exception):
    """Root of all errors raised on purpose by this package."""


class ConfigError(FedfaError, ValueError):
    """A setting is wrong; ``key`` names it if it is a single setting."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def inside(self, where: str) -> Self:
        """The same error, about a setting inside this table."""
        if not where:
            return self
        return type(self)(f"{where}.{self}", f"{where}.{self.key}") if self.key else type(self)(f"{where}: {self}")

    def about(self, source: str) -> Self:
        """The same error, and where the setting comes from."""
        return type(self)(f"{source}: {self}", self.key)


class UnknownKey(ConfigError):
    """A setting that does not exist."""


class RecordError(FedfaError):
    """A run folder cannot be used as asked."""


class EngineError(FedfaError):
    """A run cannot go on."""


def in_a_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def require(condition: bool, message: str, key: str = "") -> None:
    """Raise a ConfigError with this message unless the condition holds; ``key``: the setting it begins with."""
    if not condition:
        raise ConfigError(message, key)


def check(condition: bool, key: str, value: Any, problem: str) -> None:
    """Raise a ConfigError about this setting unless the condition holds."""
    if not condition:
        raise ConfigError(f"{key} = {value!r}: {problem}", key)
