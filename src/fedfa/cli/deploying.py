"""``fedfa deploy init``, ``deploy try``: the same strategies on real clients."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import AsJson, Interrupted, Out, Resume, Set, command_typed, free_folder, print_table


def deploy_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the app.")],
    task: Annotated[str, typer.Option(help="digits: embedded data; own: a model and data to replace.")] = "own",
) -> None:
    """Write a Flower app, ready to run: settings, server, client, task, README."""
    from fedfa.deployment.app import write_app

    write_app(folder, task)
    print(f"Wrote {folder}. Try it on this machine with: fedfa deploy try {folder}")


def deploy_try(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app's folder.")],
    nodes: Annotated[int, typer.Option(help="SuperNodes to start.")] = 4,
    out: Out = None,
    resume: Resume = False,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Run a Flower app on this machine: a SuperLink and SuperNodes as processes, which are stopped at the end.

    KEY=VALUE overrides a key of the app's run config.
    """
    from fedfa.deployment.app import check_app, require_flower
    from fedfa.errors import require
    from fedfa.report.page import write_report
    from fedfa.report.tables import as_rich, summarise
    from fedfa.runs.store import UNFINISHED, read_run
    from fedfa.settings import parse_override

    require_flower()
    from fedfa.deployment.flower.federation import Federation

    require((folder / "pyproject.toml").is_file(), f"{folder}: holds no app; 'fedfa deploy init {folder}' writes one")
    require(nodes >= 1, f"--nodes {nodes}: must be at least 1")
    config = {".".join(path): value for path, value in map(parse_override, set_ or [])}
    check_app(folder, config)
    records = (out or free_folder(Path("runs") / folder.absolute().name, resume)).absolute()
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
        hint = f"Interrupted; all processes are stopped, the run is saved.{look} Continue with: {shlex.join(words)}"
        raise Interrupted(hint) from None
    done = read_run(records)
    target = done.manifest["target"]
    page = write_report([done], records, target, command_typed())
    print_table(as_rich(summarise([done], target), target))
    print(f"Report: {page}")
    if as_json:
        print(json.dumps(done.summary(target) | {"folder": str(records)}))
