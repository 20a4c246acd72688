"""``fedfa watch``, ``replay``, ``theory``: inspect runs in progress and finished runs."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import AsJson, Data, overridden, print_table


def watch(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or one that holds several runs.")],
    port: Annotated[int, typer.Option(help="Port of the page; by default any free one.", show_default=False)] = 0,
    host: Annotated[str, typer.Option(help="Which of this machine's own addresses to serve on.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Show a run in progress, on a page that only this machine can open.

    RUN is the folder of a run, in progress or finished, or a folder with several runs, such as a comparison's. If there
    is none yet, the page waits for it. The address holds a secret; the page is read-only. Below the same address,
    metrics answers Prometheus (set FEDFA_WATCH_TOKEN to keep the address). Ctrl-C ends it.
    """
    from fedfa.watch import Watch

    page = Watch(folder, host, port)
    print(f"Watching {folder}: {page.address}  (Ctrl-C ends it)", flush=True)
    if browser and has_screen():
        import webbrowser

        webbrowser.open(page.address)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs begin with Ctrl-C ignored
    try:
        page.serve()
    except KeyboardInterrupt:
        pass


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a deployment that kept its updates.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every arrival and the model with the record.")
    ] = False,
    strategy: Annotated[
        str | None, typer.Option(help="Your own strategy, file.py:Class; by default the recorded one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Aggregate a deployment again, from its journal alone.

    RUN is the folder of a deployment with keep-updates = true. A fresh strategy gets every answer in the order of
    arrival. With --verify, the outcome of each and the final model must be those of the record, bit for bit; if not,
    the first difference is printed, and the exit code is 1.
    """
    from fedfa.deployment.replay import replay_journal, verify_replay

    replayed = replay_journal(folder, strategy)
    if verify:
        verify_replay(folder, replayed)
    taken = sum(arrival.outcome == "accepted" for arrival in replayed.arrivals)
    same = "the same, bit for bit, as the record's" if verify else replayed.model_digest
    print(
        f"{len(replayed.arrivals):,} arrivals, {taken:,} accepted, version {replayed.strategy.version:,}; model: {same}"
    )
    if as_json:
        print(
            json.dumps(
                {"arrivals": len(replayed.arrivals), "accepted": taken, "version": replayed.strategy.version,
                 "model_digest": replayed.model_digest, "verified": verify, "folder": str(folder)}
            )
        )  # fmt: skip


def theory(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one finished run.")],
    models: Annotated[int, typer.Option(help="At how many of the run's models to measure, evenly spaced.")] = 12,
    updates: Annotated[int | None, typer.Option(help="Replay only this many updates; by default all.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Measure the constants of the paper's convergence bound on a finished run, and say what follows for its settings.

    RUN is the folder of one finished run. The command computes it again from its config.toml, which takes about as
    long as the run took; the events must be the same. At some of its models it measures the clients' gradients. They
    give the bound of Theorem 1, its condition, and the weight, local step and window that these constants allow.
    docs/theory.md explains them. Works for fedfa-param, fedfa-delta, fedfa-prox, fedfa-nova, fedfa-agree and fedbuff
    if clients train with SGD.
    """
    from fedfa.runs.store import find_run

    run = find_run(folder)  # report wrong folders before torch is loaded

    from fedfa.analysis.estimates import estimate
    from fedfa.cli.progress import replay_progress
    from fedfa.report.bound import as_rich, words

    with replay_progress(models) as (progress, measured):
        found = estimate(
            run, models=models, updates=updates, overrides=overridden(None, data), progress=progress, measured=measured
        )
    print_table(as_rich(found))
    for line in words(found):
        print(line)
    if as_json:
        print(json.dumps(found.summary() | {"folder": str(folder)}))


def has_screen() -> bool:
    """Whether a user can see a browser window here; a text browser in the terminal would only disturb."""
    graphical = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return graphical and sys.stdout.isatty()
