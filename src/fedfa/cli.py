"""The command line: ``run``, ``compare``, ``report``, ``watch``, ``replay``, ``paper``, ``theory``, ``bench``, ...

Nothing heavy is imported before a command needs it, so that ``fedfa --help`` answers at once.
"""

import json
import math
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from fedfa.errors import ConfigError, FedfaError

typer.core.HAS_RICH = False  # or plain help texts would show what only rich takes away: \[required]

app = typer.Typer(
    name="fedfa",
    help="Fully asynchronous federated learning: simulate strategies on an exact virtual clock and compare them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from fedfa import __version__

        print(f"fedfa {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


deploy = typer.Typer(help="Train on real sites with Flower.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(deploy, name="deploy")

File = Annotated[
    Path | None, typer.Argument(help="Experiment in TOML ('fedfa init' writes one); by default the embedded one.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; by default runs/NAME.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder with the data sets; by default FEDFA_DATA.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one machine-readable summary as the last line.")]


@app.command()
def run(
    file: File = None, out: Out = None, resume: Resume = False, data: Data = None, set_: Set = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run one experiment and write its records and report."""
    from fedfa.experiment import load_experiment
    from fedfa.progress import run_progress
    from fedfa.report import write_report
    from fedfa.report.page import travelling
    from fedfa.report.tables import as_rich, summarise

    experiment = load_experiment(file, _overrides(set_, data))
    folder = out or _free_folder(Path("runs") / experiment.name, resume)
    if resume and not folder.is_dir():
        raise ConfigError(f"--resume: there is no run in {folder}; check --out")
    target = experiment.compare.target
    with _interruptible() as interrupted, run_progress() as progress:
        try:
            done = experiment.run(folder, resume=resume, command=_command(), interrupted=interrupted, progress=progress)
        except KeyboardInterrupt:
            raise _Interrupted(_resume_hint("run", file, folder, _overrides(set_, data))) from None
    page = write_report([done], folder, target, _command())
    _print(as_rich(summarise([done], target), target))
    if sentence := travelling([done]):
        _say(sentence)
    _say(f"Report: {page}")
    if as_json:
        print(json.dumps(done.summary(target) | {"folder": str(folder)}))


@app.command(short_help="Run several strategies under the same conditions.")
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

    from fedfa.comparison import points, run_points
    from fedfa.experiment import load_experiment
    from fedfa.progress import counted_progress
    from fedfa.report import write_report
    from fedfa.report.page import verdict
    from fedfa.report.tables import as_rich, summarise

    try:
        experiment = load_experiment(file, _overrides(set_, data))
    except ConfigError as error:
        own = " For one strategy of several, give it there: --strategies NAME:KEY=VALUE."
        raise ConfigError(
            f"{error}{own if 'strategy.' in str(error) and 'unknown key' in str(error) else ''}"
        ) from error
    wanted = experiment.compare
    specs = list(wanted.strategies) if strategies is None else _specs(strategies)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    numbers = _seeds(seeds) if seeds else list(wanted.seeds)
    goal = wanted.target if target is None else target
    if not 0 < goal <= 1:
        raise ConfigError(f"--target {goal}: must be above 0 and at most 1")
    experiment = replace(experiment, compare=replace(wanted, target=goal))
    folder = out or _free_folder(Path("runs") / f"{experiment.name}-compare", resume)
    todo = points(experiment, specs, numbers, folder)
    if not resume and any(point.folder.exists() for point in todo):
        raise ConfigError(f"--out {folder}: holds runs already; add --resume to keep them, or choose another folder")
    runs = []
    with counted_progress(len(todo)) as advance:
        try:
            for done in run_points(todo, command=_command(), resume=resume, jobs=jobs):
                runs.append(done)
                advance(f"{done.label}, seed {done.seed}: best accuracy {done.best_accuracy:.3f}")
        except KeyboardInterrupt:
            hint = _resume_hint("compare", file, folder, _overrides(set_, data), strategies, seeds, target)
            raise _Interrupted(hint) from None
    order = {point.folder: number for number, point in enumerate(todo)}
    runs.sort(key=lambda run: order[run.folder or folder])
    page = write_report(runs, folder, goal, _command())
    rows = summarise(runs, goal)
    _print(as_rich(rows, goal))
    _say(verdict(rows, goal))
    _say(f"Report: {page}")
    if as_json:
        summary = {"target": goal, "strategies": [asdict(row) for row in rows], "runs": [r.summary(goal) for r in runs]}
        print(json.dumps(summary | {"folder": str(folder), "report": str(page)}))


@app.command(short_help="Write the report page and figures of runs anew.")
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or one that holds several runs.")],
    target: Annotated[float | None, typer.Option(help="Accuracy to reach; by default the one the runs had.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; by default the folder itself.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report page and figures of runs anew; interrupted ones are shown as far as they went."""
    from dataclasses import asdict

    from fedfa.record import find_runs
    from fedfa.report import write_report
    from fedfa.report.tables import as_rich, summarise

    runs = find_runs(folder)
    goal = target if target is not None else runs[0].manifest.get("target")
    commands = {run.manifest["command"] for run in runs}
    page = write_report(runs, out or folder, goal, commands.pop() if len(commands) == 1 else "")
    rows = summarise(runs, goal)
    _print(as_rich(rows, goal))
    _say(f"Report: {page}")
    if as_json:
        print(json.dumps({"target": goal, "strategies": [asdict(row) for row in rows], "report": str(page)}))


@app.command(short_help="Show a run while it goes, on a page.")
def watch(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or one that holds several runs.")],
    port: Annotated[int, typer.Option(help="Port of the page; by default any free one.", show_default=False)] = 0,
    host: Annotated[str, typer.Option(help="Which of this machine's own addresses to serve on.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Show a run while it goes, on a page that this machine alone can open.

    RUN is the folder of a run under way or finished, or one that holds several, such as a comparison's; where there is
    none yet, the page waits for it. The address holds a secret; nothing can be changed through it. Below the same
    address, metrics answers Prometheus (set FEDFA_WATCH_TOKEN to keep the address). Ctrl-C ends it.
    """
    from fedfa.watch import Watch

    page = Watch(folder, host, port)
    print(f"Watching {folder}: {page.address}  (Ctrl-C ends it)", flush=True)
    if browser and _has_screen():
        import webbrowser

        webbrowser.open(page.address)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs begin with Ctrl-C ignored
    try:
        page.serve()
    except KeyboardInterrupt:
        pass


@app.command(short_help="Aggregate a deployment anew from its journal.")
def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a deployment that kept its updates.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every arrival and the model with the record.")
    ] = False,
    strategy: Annotated[
        str | None, typer.Option(help="Where a strategy of your own is: file.py:Class; by default the one recorded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Aggregate a deployment once more, from its journal alone.

    RUN is the folder of a deployment with keep-updates = true. Every answer that was ever received is given to a fresh
    strategy, in the order of arrival. With --verify, the outcome of each and the final model must be those of the
    record, bit for bit; the first difference is told, and the exit code is 1.
    """
    from fedfa.replayer import replay_journal, verify_replay

    replayed = replay_journal(folder, strategy)
    if verify:
        verify_replay(folder, replayed)
    taken = sum(arrival.outcome == "accepted" for arrival in replayed.arrivals)
    same = "the same, bit for bit, as the record's" if verify else replayed.model_digest
    _say(
        f"{len(replayed.arrivals):,} arrivals, {taken:,} accepted, version {replayed.strategy.version:,}; model: {same}"
    )
    if as_json:
        print(
            json.dumps(
                {"arrivals": len(replayed.arrivals), "accepted": taken, "version": replayed.strategy.version,
                 "model_digest": replayed.model_digest, "verified": verify, "folder": str(folder)}
            )
        )  # fmt: skip


@app.command(short_help="Make a table or figure of the FedFa paper.")
def paper(
    name: Annotated[str | None, typer.Argument(help="table1 ... table5, figure1 ... figure6, weather, or all.")] = None,
    task: Annotated[
        str | None, typer.Option(help="Workloads, comma-separated; by default the paper's at hand.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(help="smoke (the default): minutes on a laptop; full: the paper's own size.", show_default=False),
    ] = "smoke",
    seeds: Annotated[
        str, typer.Option(help="Comma-separated seeds, for example 0,1,2; by default 0.", show_default=False)
    ] = "0",
    out: Annotated[Path | None, typer.Option(help="Folder for the results; by default runs/paper-SCALE.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; by default one per core.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes; the same command goes on from there.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: show the runs that are there, and say which are not.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write tables and figures into this Markdown file, between its markers.")
    ] = None,
    data: Data = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Make a table or figure of the FedFa paper, our numbers beside the paper's; without NAME, list them.

    NAME is one of table1 ... table5, figure1 ... figure6, same-time, delta, pace, refill, mixing, weather, or all.

    Runs that are in the results folder already are kept, so an interrupted command is continued by repeating it. The
    most informative ones are made first.
    """
    started = time.time()
    if name is None:
        from fedfa.recipes import RECIPES, list_recipes

        _print(list_recipes())
        if as_json:
            print(json.dumps([{"name": one.name, "title": one.title, "tasks": one.tasks} for one in RECIPES]))
        return
    from fedfa.progress import counted_progress
    from fedfa.recipes.kitchen import choose, make, standing
    from fedfa.recipes.markdown import check_markdown

    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: must be at least 1")
    if minutes is not None and not minutes > 0:
        raise ConfigError(f"--minutes {minutes:g}: must be above 0")
    if markdown is not None:
        check_markdown(markdown)
    if minutes is not None and show:
        raise ConfigError("--show: runs nothing; leave --minutes out")
    order = choose(
        name,
        scale=scale,
        tasks=task.split(",") if task else None,
        seeds=_seeds(seeds),
        folder=out or Path("runs") / f"paper-{scale}",
        overrides=_overrides(set_, data),
        only_show=show,
    )
    try:
        order.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out {order.folder}: cannot be written ({error.strerror}); choose another folder"
        ) from error
    for line in order.remarks:
        _say(line)
    try:
        until = math.inf if minutes is None else started + 60 * minutes
        page, sections = make(
            order, command=_command(), jobs=jobs, progress=counted_progress, until=until, markdown=markdown
        )
    except KeyboardInterrupt:
        raise _Interrupted("Interrupted; what was done is saved. Continue with the same command.") from None
    for section in sections:
        _say(f"\n{section.title}\n" + "\n".join(filter(None, section.text)))
        for grid in section.grids:
            _print(grid.as_rich())
        for figure in section.figures:
            _say(f"Figure: {order.folder / 'figures' / figure.name}.pdf")
    _say(f"Page: {page}")
    there, wanted = standing(order)
    if minutes is not None or show:
        more = f"{there} of {wanted} runs are there"
        _say(f"{more}; repeat the command{' without --show' if show else ''} to go on" if there < wanted else more)
    if as_json:
        values = {section.name: dict(section.values) for section in sections}
        print(json.dumps({"scale": scale, "page": str(page), "runs": there, "wanted": wanted} | values))


@app.command(short_help="Measure the paper's convergence bound on a run.")
def theory(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one finished run.")],
    models: Annotated[int, typer.Option(help="At how many of the run's models to measure, evenly spaced.")] = 12,
    updates: Annotated[int | None, typer.Option(help="Replay only so many updates; by default all.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Measure the constants of the paper's convergence bound on a finished run, and say what follows for its settings.

    RUN is the folder of one finished run. It is computed once more from the config.toml there, which takes about as
    long as it took, and must take the same course. At some of its models the clients' gradients are measured; out come
    the bound of Theorem 1, its condition, and which weight, local step and window these constants allow. docs/theory.md
    tells how to read them. Runs of fedfa-param, fedfa-nova, fedbuff, and fedfa-delta and fedfa-prox with anchor =
    'model', whose clients train with SGD.
    """
    from fedfa.record import find_run

    run = find_run(folder)  # wrong folders are told before torch is loaded

    from fedfa.estimates import estimate
    from fedfa.progress import replay_progress
    from fedfa.report.bound import as_rich, words

    with replay_progress(models) as (progress, measured):
        found = estimate(
            run, models=models, updates=updates, overrides=_overrides(None, data), progress=progress, measured=measured
        )
    _print(as_rich(found))
    for line in words(found):
        _say(line)
    if as_json:
        print(json.dumps(found.summary() | {"folder": str(folder)}))


@app.command(short_help="Measure ours against baselines, with ratios.")
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Measurements to make.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the measurements.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one turn each: does it work here?")] = False,
    repeats: Annotated[int | None, typer.Option(help="Turns of each side; by default each measurement knows.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers there.")] = None,
    out: Annotated[
        Path, typer.Option(help="growth: folder of its figure; by default runs/bench.", show_default=False)
    ] = Path("runs/bench"),
    workloads: Annotated[str | None, typer.Option(help="gpu: resnet18,bert-tiny,minilm-lora, or some.")] = None,
    precision: Annotated[str | None, typer.Option(help="gpu: bf16 (the default), tf32 or fp32.")] = None,
    updates: Annotated[int | None, typer.Option(help="gpu: updates with lanes; by default 100.")] = None,
    inline_updates: Annotated[int | None, typer.Option(help="gpu: updates one by one; by default 12.")] = None,
    compile: Annotated[bool, typer.Option("--compile", help="gpu: also compiled lanes.")] = False,
) -> None:
    """Measure ours against a baseline, in turns, and print the ratios; without NAME, all that this machine can.

    NAME is one or more of job, executors, engine, aggregation, checkpoint, gpu, lanes, growth.
    """
    from fedfa.bench import MEASUREMENTS, Options, as_grid, choose, measured

    if listed:
        for measurement in MEASUREMENTS:
            _say(f"{measurement.name:12} {measurement.title}")
        return
    for_gpu = {
        "workloads": tuple(workloads.split(",")) if workloads else None, "precision": precision, "updates": updates,
        "inline_updates": inline_updates, "compile": compile or None,
    }  # fmt: skip
    given = {name: value for name, value in for_gpu.items() if value is not None}
    for name in given:
        if not {"gpu", "lanes"} & set(names or []):
            raise ConfigError(f"--{name.replace('_', '-')}: is for one measurement; name it: fedfa bench gpu")
    for name, value in (("repeats", repeats), ("updates", updates), ("inline-updates", inline_updates)):
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be at least 1")
    wanted, remarks = choose(names or [])
    options = Options(quick=quick, repeats=repeats, out=out, **given)

    from fedfa.progress import counted_progress
    from fedfa.record import atomic, machine

    done = []
    try:
        with counted_progress(len(wanted), "measurements") as advance:
            for measurement, rows in measured(wanted, options, lambda text: advance(text, 0)):
                advance(measurement.name)
                done.append((measurement, rows))
    finally:  # what was measured before an interruption is worth showing
        for measurement, rows in done:
            _print(as_grid(measurement, rows).as_rich())
    for line in remarks:
        _say(line)
    if json_file is not None:
        rows = {measurement.name: [row.as_dict() for row in rows] for measurement, rows in done}
        with atomic(json_file) as file:
            file.write(
                json.dumps({"command": _command(), "machine": machine(), "measurements": rows}, indent=1).encode()
            )


@app.command()
def strategies(as_json: AsJson = False) -> None:
    """List the strategies with their papers and parameters."""
    from fedfa.catalogue import catalogue, catalogue_table

    _print(catalogue_table())
    if as_json:
        print(json.dumps(catalogue()))


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Where to write the experiment.")] = Path("experiment.toml"),
) -> None:
    """Write a commented experiment file to start from."""
    from importlib.resources import files

    text = (files("fedfa") / "template.toml").read_text()
    try:
        with file.open("x") as handle:
            handle.write(text)
    except FileExistsError:
        raise ConfigError(f"{file}: exists already; give another name: fedfa init NAME.toml") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror})") from error
    _say(f"Wrote {file}. Run it with: fedfa run {file}")


@deploy.command("init")
def deploy_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the app.")],
    task: Annotated[str, typer.Option(help="digits: embedded data; own: a model and data to replace.")] = "own",
) -> None:
    """Write a Flower app, ready to run: settings, server, client, task, README."""
    from fedfa.apps import write_app

    write_app(folder, task)
    _say(f"Wrote {folder}. Try it on this machine with: fedfa deploy try {folder}")


@deploy.command("try")
def deploy_try(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app's folder.")],
    nodes: Annotated[int, typer.Option(help="SuperNodes to start.")] = 4,
    out: Out = None,
    resume: Resume = False,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Run a Flower app on this machine: a SuperLink and SuperNodes as processes, which are stopped in the end.

    KEY=VALUE overrides a key of the app's run config.
    """
    from fedfa.apps import check_app, require_flower
    from fedfa.errors import require
    from fedfa.record import UNFINISHED, read_run
    from fedfa.report import write_report
    from fedfa.report.tables import as_rich, summarise
    from fedfa.settings import parse_override

    require_flower()
    from fedfa.flower.local import Federation

    require((folder / "pyproject.toml").is_file(), f"{folder}: holds no app; 'fedfa deploy init {folder}' writes one")
    require(nodes >= 1, f"--nodes {nodes}: must be at least 1")
    config = {".".join(path): value for path, value in map(parse_override, set_ or [])}
    check_app(folder, config)
    records = (out or _free_folder(Path("runs") / folder.absolute().name, resume)).absolute()
    try:
        with Federation(nodes) as federation:
            federation.run(folder, config | {"out": str(records)} | ({"resume": True} if resume else {}))
    except KeyboardInterrupt:
        words = ["fedfa", "deploy", "try", str(folder), "--nodes", str(nodes), "--out", str(records), "--resume"]
        for text in set_ or []:
            words += ["--set", text]
        look = (
            f" See it so far: {shlex.join(['fedfa', 'report', str(records)])}."
            if (records / UNFINISHED).is_file()
            else ""
        )
        hint = f"Interrupted; all is stopped, what was done is saved.{look} Continue with: {shlex.join(words)}"
        raise _Interrupted(hint) from None
    done = read_run(records)
    target = done.manifest["target"]
    page = write_report([done], records, target, _command())
    _print(as_rich(summarise([done], target), target))
    _say(f"Report: {page}")
    if as_json:
        print(json.dumps(done.summary(target) | {"folder": str(records)}))


# Helpers -------------------------------------------------------------------------------------------------------------


INTERRUPTED = 130
"""The exit status of a command that Ctrl-C has ended."""


class _Interrupted(Exception):
    """Ctrl-C, with what to type next."""


class _interruptible:
    """Ctrl-C asks the run to save itself; a second one ends it at once."""

    def __enter__(self) -> Callable[[], bool]:
        self._asked = False
        self._before = signal.signal(signal.SIGINT, self._ask)
        return lambda: self._asked

    def _ask(self, *_: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __exit__(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, self._before)


def _overrides(set_: list[str] | None, data: Path | None) -> list[str]:
    """``--set`` and ``--data`` as overrides of the experiment."""
    return [*(set_ or []), *([f"data.folder={json.dumps(str(data.absolute()))}"] if data else [])]


def _specs(text: str) -> list[str]:
    """Strategies with commas between them; those inside {...} and [...] belong to a value."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text)]


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--seeds {text}: must be whole numbers, 0 or more, with commas, for example 0,1,2")
    return [int(part) for part in parts]


def _free_folder(wanted: Path, resume: bool) -> Path:
    """``wanted``, or the first of wanted-2, wanted-3, ... that is free; to resume, the last one without its report."""
    taken = [wanted] if wanted.exists() else []
    while taken and (following := wanted.with_name(f"{wanted.name}-{len(taken) + 1}")).exists():
        taken.append(following)
    if resume:
        if not taken:
            raise ConfigError(f"--resume: there is no run in {wanted}; give its folder with --out")
        return next((folder for folder in reversed(taken) if not (folder / "report.html").exists()), taken[-1])
    return wanted.with_name(f"{wanted.name}-{len(taken) + 1}") if taken else wanted


def _command() -> str:
    """What was typed, as records keep it: without this machine's own paths."""
    words: list[str] = []
    for word in ["fedfa", *sys.argv[1:]]:
        option, equals, value = word.rpartition("=")
        if words[-1:] == ["--data"] or option in ("--data", "data.folder"):
            value = "DIR"
        elif Path(value).is_absolute():
            value = Path(value).name
        words.append(f"{option}{equals}{value}")
    return shlex.join(words)


def _resume_hint(
    command: str, file: Path | None, folder: Path, overrides: list[str], strategies: str | None = None,
    seeds: str | None = None, target: float | None = None,
) -> str:  # fmt: skip
    words = ["fedfa", command, *([str(file)] if file else []), "--out", str(folder), "--resume"]
    for option, value in (("--strategies", strategies), ("--seeds", seeds), ("--target", target)):
        words += [option, str(value)] if value is not None else []
    for text in overrides:
        words += ["--set", text]
    look = shlex.join(["fedfa", "report", str(folder)])
    return f"Interrupted; what was done is saved. See it so far: {look}. Continue with: {shlex.join(words)}"


def _print(table: Any) -> None:
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)


def _has_screen() -> bool:
    """Whether somebody sits here who would see a browser; one inside the terminal would only be in the way."""
    graphical = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return graphical and sys.stdout.isatty()


def _say(text: str) -> None:
    print(text)


def main() -> None:
    """Entry point: every expected error is one line on stderr."""
    try:
        if app(standalone_mode=False) == INTERRUPTED:  # what typer makes of a Ctrl-C that no command has caught
            raise KeyboardInterrupt
    except FedfaError as error:
        print(f"fedfa: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except _Interrupted as pause:
        print(str(pause), file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        print("fedfa: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is None:  # not about a file that somebody named
            raise
        print(f"fedfa: {error.filename}: {error.strerror}; choose another place, or make room there", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if isinstance(error, _click_error()):
            error.show()  # pyright: ignore[reportAttributeAccessIssue]
            sys.exit(error.exit_code)  # pyright: ignore[reportAttributeAccessIssue]
        raise


def _click_error() -> type[Exception]:
    import click

    return click.ClickException


if __name__ == "__main__":
    main()
