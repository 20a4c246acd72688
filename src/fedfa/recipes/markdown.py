"""The same tables and figures as a part of a Markdown file, whose other parts are written by hand."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from fedfa.errors import ConfigError, require
from fedfa.recipes.lab import Lab, Results, Section
from fedfa.recipes.page import introduction, names
from fedfa.record import Run, atomic
from fedfa.report.grid import Grid
from fedfa.report.shapes import number

BEGIN, END = "<!-- fedfa paper: begin -->", "<!-- fedfa paper: end -->"


def check_markdown(file: Path) -> None:
    """Before anything runs: the file can be written, and it says where."""
    _around(file)


def write_markdown(file: Path, lab: Lab, sections: Sequence[Section], results: Results, command: str) -> None:
    """Replace what stands between the markers; a file that is not there yet is made of them alone."""
    with_text = replaced(file, lab, sections, results, command)
    with atomic(file) as handle:
        handle.write(with_text.encode())


def replaced(file: Path, lab: Lab, sections: Sequence[Section], results: Results, command: str) -> str:
    """The file's text as it shall be."""
    before, after = _around(file)
    parts = [f"{introduction(lab)} Everything between the two markers is made by:", f"```\n{command}\n```"]
    for section in sections:
        parts += [f"## {section.title}", f"`{_command_for(section, lab)}`", *filter(None, section.text)]
        parts += [grid.as_markdown() for grid in section.grids]
        for figure in section.figures:
            picture = os.path.relpath(lab.folder / "figures" / f"{figure.name}.png", file.parent)
            parts += [f"![{figure.title}]({Path(picture).as_posix()})", f"{figure.title}. {figure.caption}"]
    runs = {run.folder: run.whole or run for _, own in lab.with_begun(results) for run in own}
    parts += ["## The runs", *_runs(lab, list(runs.values())), names(results).as_markdown()]
    return "\n\n".join([f"{before}{BEGIN}", *parts, f"{END}{after}"])


def _around(file: Path) -> tuple[str, str]:
    """What stands before and after the markers."""
    if not file.exists():
        return "", "\n"
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--markdown {file}: cannot be read ({error}); give a text file") from error
    good = text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)
    require(good, f"--markdown {file}: must hold the lines {BEGIN} and {END} once; what is between them is replaced")
    return text[: text.index(BEGIN)], text[text.index(END) + len(END) :]


def _command_for(section: Section, lab: Lab) -> str:
    seeds = sorted({*lab.seeds, *section.seeds})
    words = ["fedfa", "paper", section.name, "--scale", lab.scale, "--seeds", ",".join(map(str, seeds))]
    for text in lab.overrides:
        words += [] if text.startswith("data.folder=") else ["--set", text]
    return f"{shlex.join(words)} --data DIR"


def _runs(lab: Lab, runs: Sequence[Run]) -> list[str]:
    """Every run behind the tables: how it ended and what it took."""
    if not runs:
        return ["None is there yet."]
    machines = {", ".join(f"{key} {value}" for key, value in run.manifest["machine"].items()): None for run in runs}
    spent = sum(run.manifest["wall_seconds"] for run in runs)
    rows = [
        (
            str(run.folder.relative_to(lab.folder)) if run.folder else run.label,
            run.manifest["ended"],
            f"{len(run.accepted):,}",
            number(run.seconds),
            number(run.manifest["wall_seconds"]),
            f"{100 * run.best_accuracy:.1f}",
            f"{100 * run.final_accuracy:.1f}",
        )
        for run in runs
    ]
    headers = ("Run", "Ended by", "Updates", "Virtual s", "Real s", "Best (%)", "Final (%)")
    told = f"{len(runs)} runs, {spent / 60:,.1f} minutes of computing, on: {'; '.join(machines)}."
    return [told, Grid("All of them", headers, rows).as_markdown()]
