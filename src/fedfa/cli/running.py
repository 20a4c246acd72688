"""``fedfa run``, ``compare``, ``report``: make runs and show them."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import (
    AsJson,
    Data,
    File,
    Interrupted,
    Out,
    Resume,
    Set,
    command_typed,
    free_folder,
    interruptible,
    overridden,
    print_table,
    resume_hint,
    seed_numbers,
)
from fedfa.errors import ConfigError, UnknownKey


def run(
    file: File = None, out: Out = None, resume: Resume = False, data: Data = None, set_: Set = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run one experiment and write its records and report."""
    from fedfa.cli.progress import run_progress
    from fedfa.experiments.config import load_experiment
    from fedfa.report.page import travelling, write_report
    from fedfa.report.tables import as_rich, summarise

    experiment = load_experiment(file, overridden(set_, data))
    folder = out or free_folder(Path("runs") / experiment.name, resume)
    if resume and not folder.is_dir():
        raise ConfigError(f"--resume: there is no run in {folder}; check --out")
    target = experiment.compare.target
    with interruptible() as interrupted, run_progress() as progress:
        try:
            done = experiment.run(
                folder, resume=resume, command=command_typed(), interrupted=interrupted, progress=progress
            )
        except KeyboardInterrupt:
            raise Interrupted(resume_hint("run", file, folder, overridden(set_, data))) from None
    page = write_report([done], folder, target, command_typed())
    print_table(as_rich(summarise([done], target), target))
    if sentence := travelling([done]):
        print(sentence)
    print(f"Report: {page}")
    if as_json:
        print(json.dumps(done.summary(target) | {"folder": str(folder)}))


def compare(
    file: File = None,
    strategies: Annotated[str | None, typer.Option(help="Comma-separated; NAME or NAME:KEY=VALUE:...")] = None,
    seeds: Annotated[str | None, typer.Option(help="Comma-separated seeds, for example 0,1,2.")] = None,
    target: Annotated[float | None, typer.Option(help="Accuracy to reach, for example 0.9.")] = None,
    out: Out = None,
    resume: Resume = False,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; by default one per core.")] = None,
    data: Data = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Run several strategies under the same weather and data split, and print which reaches the target first."""
    from dataclasses import asdict, replace

    from fedfa.cli.progress import counted_progress
    from fedfa.experiments.config import load_experiment
    from fedfa.experiments.points import in_order, jobs_for, points
    from fedfa.experiments.processes import run_points
    from fedfa.report.page import verdict, write_report
    from fedfa.report.tables import as_rich, summarise

    try:
        experiment = load_experiment(file, overridden(set_, data))
    except ConfigError as error:
        if not (isinstance(error, UnknownKey) and error.key.startswith("strategy.")):
            raise
        hint = "For one strategy of several, give it there: --strategies NAME:KEY=VALUE."
        raise UnknownKey(f"{error} {hint}", error.key) from error
    wanted = experiment.compare
    specs = list(wanted.strategies) if strategies is None else strategy_specs(strategies)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    numbers = seed_numbers(seeds) if seeds else list(wanted.seeds)
    goal = wanted.target if target is None else target
    if not 0 < goal <= 1:
        raise ConfigError(f"--target {goal}: must be above 0 and at most 1")
    experiment = replace(experiment, compare=replace(wanted, target=goal))
    folder = out or free_folder(Path("runs") / f"{experiment.name}-compare", resume)
    todo = points(experiment, specs, numbers, folder)
    if not resume and any(point.folder.exists() for point in todo):
        raise ConfigError(f"--out {folder}: holds runs already; add --resume to keep them, or choose another folder")
    runs, jobs = [], jobs or jobs_for(todo)
    with counted_progress(len(todo)) as advance:
        try:
            for done in run_points(in_order(todo), jobs=jobs, total=len(todo), command=command_typed(), resume=resume):
                runs.append(done)
                advance(f"{done.label}, seed {done.seed}: best accuracy {done.best_accuracy:.3f}")
        except KeyboardInterrupt:
            hint = resume_hint("compare", file, folder, overridden(set_, data), strategies, seeds, target)
            raise Interrupted(hint) from None
    order = {point.folder: number for number, point in enumerate(todo)}
    runs.sort(key=lambda run: order[run.folder or folder])
    page = write_report(runs, folder, goal, command_typed())
    rows = summarise(runs, goal)
    print_table(as_rich(rows, goal))
    print(verdict(rows, goal))
    print(f"Report: {page}")
    if as_json:
        summary = {"target": goal, "strategies": [asdict(row) for row in rows], "runs": [r.summary(goal) for r in runs]}
        print(json.dumps(summary | {"folder": str(folder), "report": str(page)}))


def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or one that holds several runs.")],
    target: Annotated[float | None, typer.Option(help="Accuracy to reach; by default the one the runs had.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; by default the folder itself.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite the report page and figures of runs; interrupted runs are shown up to their last row."""
    from dataclasses import asdict

    from fedfa.report.page import write_report
    from fedfa.report.tables import as_rich, summarise
    from fedfa.runs.store import find_runs

    runs = find_runs(folder)
    goal = target if target is not None else runs[0].manifest.get("target")
    commands = {run.manifest["command"] for run in runs}
    page = write_report(runs, out or folder, goal, commands.pop() if len(commands) == 1 else "")
    rows = summarise(runs, goal)
    print_table(as_rich(rows, goal))
    print(f"Report: {page}")
    if as_json:
        print(json.dumps({"target": goal, "strategies": [asdict(row) for row in rows], "report": str(page)}))


def strategy_specs(text: str) -> list[str]:
    """Strategies with commas between them; those inside {...} and [...] belong to a value."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text)]
