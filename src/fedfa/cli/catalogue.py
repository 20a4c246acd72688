"""The strategies as a table for a terminal."""

from dataclasses import fields
from typing import Any

from rich.table import Table
from rich.text import Text

from fedfa.strategies.base import Strategy
from fedfa.strategies.catalogue import catalogue


def catalogue_table() -> Table:
    """The catalogue for a terminal; parameters of all strategies are listed once, below."""
    shared = {f.name for f in fields(Strategy) if f.init}
    entries = catalogue()
    common = [_line(p) for p in entries[0]["parameters"] if p["name"] in shared]
    table = Table(
        title="Strategies",
        caption="Every strategy also has:\n" + "\n".join(common) + "\nSet them with --set strategy.NAME=VALUE.",
        caption_justify="left",
        show_lines=True,
    )
    table.add_column("name", no_wrap=True)
    table.add_column("what it does, and its paper", ratio=2)
    table.add_column("parameter (default): meaning", ratio=3)
    for entry in entries:
        own = [_line(p) for p in entry["parameters"] if p["name"] not in shared]
        table.add_row(entry["name"], Text(f"{entry['summary']}\n{entry['paper']}"), Text("\n".join(own)))
    return table


def _line(parameter: dict[str, Any]) -> str:
    default = parameter["default"]
    return f"{parameter['name']} ({'none' if default is None else default}): {parameter['meaning']}"
