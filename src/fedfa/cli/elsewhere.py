"""Commands that other packages bring, as entry points of the group ``fedfa.commands``. Only a call looks for them."""

from importlib.metadata import entry_points
from typing import Any

import typer

from fedfa.errors import ConfigError

GROUP = "fedfa.commands"
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""A command from another package parses its own options, ``--help`` included."""


def paper(context: typer.Context) -> Any:
    return _call("paper", context.args, "the reproduction of the paper; from a checkout: pip install ./reproduction")


def _call(name: str, words: list[str], package: str) -> Any:
    """Run the command that an installed package has under this name; else name the package that brings it."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise ConfigError(f"{name}: not installed; it comes with {package}")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(found.load())
    return typer.main.get_command(app).main(words, prog_name=f"fedfa {name}", standalone_mode=False)
