"""``fedfa paper``: the paper's tables and figures."""

import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import AsJson, Data, Interrupted, Set, command_typed, overridden, print_table, seed_numbers
from fedfa.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]
"""The reproduction's own folder, where the package is installed from a checkout in place."""


def paper(
    name: Annotated[
        str | None, typer.Argument(help="table1 ... table5, figure1 ... figure6, same-time, ..., or all.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Workloads, comma-separated; by default the paper's with available data.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(help="smoke (the default): minutes on a laptop; full: the paper's own size.", show_default=False),
    ] = "smoke",
    seeds: Annotated[
        str, typer.Option(help="Comma-separated seeds, for example 0,1,2; by default 0.", show_default=False)
    ] = "0",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; by default runs/paper-smoke, at full scale the checkout's own."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; by default one per core.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after this many minutes; the same command then continues.")
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Run nothing: show the existing runs of all seeds, and how many of --seeds are missing."
        ),
    ] = False,
    figures: Annotated[
        bool | None,
        typer.Option(
            "--figures/--no-figures", help="Draw the figures as PDF and PNG, too; by default unless --show is given.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the tables into this Markdown file, between its markers.")
    ] = None,
    data: Data = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a table or figure of the FedFa paper, our numbers beside the paper's; without NAME, list them.

    NAME is one of table1 ... table5, figure1 ... figure6, same-time, delta, window-cost, refill, mixing, weather,
    coverage, reruns, or all.

    Runs that are already in the results folder are kept: repeat an interrupted command to continue it. The most
    informative runs are made first.
    """
    started = time.time()
    if name is None:
        _list(as_json)
        return
    from fedfa.cli.progress import counted_progress
    from fedfa_reproduction.making import make
    from fedfa_reproduction.markdown import check_markdown
    from fedfa_reproduction.queue import how_many
    from fedfa_reproduction.selection import choose

    _check(jobs, minutes, show)
    if markdown is not None:
        check_markdown(markdown)
    selection = choose(
        name,
        scale=scale,
        tasks=task.split(",") if task else None,
        seeds=seed_numbers(seeds),
        folder=out or default_folder(scale),
        overrides=overridden(set_, data),
        only_show=show,
    )
    folder = selection.study.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written ({error.strerror}); choose another folder") from error
    for line in selection.remarks:
        print(line)
    draw = not show if figures is None else figures
    try:
        page, sections = make(
            selection,
            command=command_typed(),
            jobs=jobs,
            progress=counted_progress,
            until=math.inf if minutes is None else started + 60 * minutes,
            markdown=markdown,
            draw=draw,
        )
    except KeyboardInterrupt:
        raise Interrupted("Interrupted; the work so far is saved. Continue with the same command.") from None
    for section in sections:
        print(f"\n{section.title}\n" + "\n".join(filter(None, section.text)))
        for grid in section.grids:
            print_table(grid.as_rich())
        for figure in section.figures if draw else ():
            print(f"Figure: {folder / 'figures' / figure.name}.pdf")
    print(f"Page: {page}")
    there, wanted = how_many(selection.study, selection.comparisons)
    if minutes is not None or show:
        more = f"{there} of {wanted} runs are there"
        print(f"{more}; repeat the command{' without --show' if show else ''} to go on" if there < wanted else more)
    if as_json:
        values = {section.name: dict(section.values) for section in sections}
        print(json.dumps({"scale": scale, "page": str(page), "runs": there, "wanted": wanted} | values))


def default_folder(scale: str) -> Path:
    """The records of a checkout are those of the full scale."""
    if scale == "full" and (CHECKOUT / "records").is_dir():
        return CHECKOUT
    return Path("runs") / f"paper-{scale}"


def _check(jobs: int | None, minutes: float | None, show: bool) -> None:
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes {minutes:g}: must be above 0")
    if minutes is not None and show:
        raise ConfigError("--show: runs nothing; leave --minutes out")


def _list(as_json: bool) -> None:
    from fedfa_reproduction.recipes import RECIPES, list_recipes

    print_table(list_recipes())
    if as_json:
        print(json.dumps([{"name": one.name, "title": one.title, "tasks": one.tasks} for one in RECIPES]))
