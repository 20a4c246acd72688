"""What strategies there are, with their papers and parameters: read off the classes themselves."""

import ast
import inspect
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fedfa.core import Strategy
from fedfa.strategies import ALL

if TYPE_CHECKING:
    from rich.table import Table


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
        for strategy in ALL
    ]


@cache
def meanings(settings: type) -> dict[str, str]:
    """The texts that stand under the fields in the source of a dataclass and its bases."""
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__[:-1]):
        if not is_dataclass(cls):
            continue
        body = ast.parse(inspect.getsource(cls)).body[0].body  # pyright: ignore[reportAttributeAccessIssue]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                found[field.target.id] = ast.literal_eval(text.value)
    return found


def catalogue_table() -> "Table":
    """The catalogue for a terminal; what all strategies share is said once, below."""
    from rich.table import Table
    from rich.text import Text

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
