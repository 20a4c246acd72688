"""Every error a user can meet, in one tree. A message names what was wrong, the value seen and the remedy.

FedfaError
├── ConfigError     a setting, a file or an argument is wrong; nothing was written
├── RecordError     a run folder cannot be used as asked (taken, unfinished, damaged)
└── EngineError     a run cannot go on (nothing left to do, a strategy that returns nonsense)
"""


class FedfaError(Exception):
    """Root of all errors raised on purpose by this package."""


class ConfigError(FedfaError, ValueError):
    """A setting is wrong."""


class RecordError(FedfaError):
    """A run folder cannot be used as asked."""


class EngineError(FedfaError):
    """A run cannot go on."""


def in_a_line(error: BaseException) -> str:
    """An exception's kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def require(condition: bool, message: str) -> None:
    """Raise a ConfigError with this message unless the condition holds."""
    if not condition:
        raise ConfigError(message)
