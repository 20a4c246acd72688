"""``fedfa watch``, ``replay``, ``theory``: look into runs under way and finished ones."""

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
    """Show a run while it goes, on a page that this machine alone can open.

    RUN is the folder of a run under way or finished, or one that holds several, such as a comparison's; where there is
    none yet, the page waits for it. The address holds a secret; nothing can be changed through it. Below the same
    address, metrics answers Prometheus (set FEDFA_WATCH_TOKEN to keep the address). Ctrl-C ends it.
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
        str | None, typer.Option(help="Where a strategy of your own is: file.py:Class; by default the one recorded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Aggregate a deployment once more, from its journal alone.

    RUN is the folder of a deployment with keep-updates = true. Every answer that was ever received is given to a fresh
    strategy, in the order of arrival. With --verify, the outcome of each and the final model must be those of the
    record, bit for bit; the first difference is told, and the exit code is 1.
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
    updates: Annotated[int | None, typer.Option(help="Replay only so many updates; by default all.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Measure the constants of the paper's convergence bound on a finished run, and say what follows for its settings.

    RUN is the folder of one finished run. It is computed once more from the config.toml there, which takes about as
    long as it took, and must have the same events. At some of its models the clients' gradients are measured. They give
    the bound of Theorem 1, its condition, and which weight, local step and window these constants allow. docs/theory.md
    tells how to read them. Runs of fedfa-param, fedfa-delta, fedfa-prox, fedfa-nova, fedfa-agree and fedbuff whose
    clients train with SGD.
    """
    from fedfa.runs.store import find_run

    run = find_run(folder)  # wrong folders are told before torch is loaded

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
    """Whether somebody sits here who would see a browser; one inside the terminal would only be in the way."""
    graphical = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return graphical and sys.stdout.isatty()
