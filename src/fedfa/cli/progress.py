"""Progress bars for long work, on stderr; silent without a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from fedfa.simulation.engine import Simulation


def _bar(*columns: TextColumn) -> Progress:
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(quiet=True)
    return Progress(
        BarColumn(), *columns, TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn(), console=console
    )


@contextmanager
def run_progress() -> Iterator[Callable[["Simulation"], None]]:
    """Shows virtual time, updates per second and accuracy of one run."""
    with _bar(TextColumn("{task.description}")) as bar:
        yield _follower(bar)


@contextmanager
def replay_progress(models: int) -> Iterator[tuple[Callable[["Simulation"], None], Callable[[str], None]]]:
    """Shows the replay of a run, and then at how many of its models gradients were measured."""
    with _bar(TextColumn("{task.description}")) as bar:
        follow = _follower(bar)
        task = bar.add_task("gradients", total=models, visible=False)
        yield follow, lambda text: bar.update(task, advance=1, visible=True, description=f"gradients: {text}")


def _follower(bar: Progress) -> Callable[["Simulation"], None]:
    task = bar.add_task("starting", total=1.0)
    start: list[float] = []

    def show(engine: "Simulation") -> None:
        elapsed = bar.tasks[0].elapsed or 1e-9
        start[:] = start or [engine.accepted]
        text = (
            f"{engine.label}: {engine.now:,.0f} virtual s, {engine.accepted:,} updates "
            f"({(engine.accepted - start[0]) / elapsed:,.0f}/s), accuracy {engine.last_score[1]:.3f}"
        )
        bar.update(task, completed=engine.stop.share_done(engine.accepted, engine.now), description=text)

    return show


@contextmanager
def counted_progress(total: int, what: str = "runs") -> Iterator[Callable[..., None]]:
    """Shows how many runs of a comparison, or other pieces of work, are done: call it with a text at each."""
    with _bar(TextColumn(f"{{task.completed}}/{{task.total}} {what}  {{task.description}}")) as bar:
        task = bar.add_task("starting", total=total)

        def advance(text: str, by: int = 1) -> None:
            bar.update(task, advance=by, description=text)

        yield advance
