"""A table as plain text cells: described once, shown in the terminal and on a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text; the first column names the row. ``caption`` explains how to read it."""

    title: str
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"{self.title}: {len(row)} cells under {len(self.headers)} headers in {row}")

    def as_rich(self) -> Table:
        table = Table(
            title=self.title,
            title_justify="left",
            box=SIMPLE_HEAD,
            caption=self.caption or None,
            caption_justify="left",
        )
        for position, header in enumerate(self.headers):
            table.add_column(header, justify="right" if position else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def as_markdown(self) -> str:
        lines = [self.headers, ("---", *("---:" for _ in self.headers[1:])), *self.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
        return "\n\n".join(filter(None, (f"### {self.title}", table, self.caption)))
