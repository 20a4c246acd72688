"""``fedfa bench``: ours against baselines."""

from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import command_typed, print_table
from fedfa.errors import ConfigError


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Measurements to make.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the measurements.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one turn each: does it work here?")] = False,
    repeats: Annotated[int | None, typer.Option(help="Turns of each side; defaults differ by measurement.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers there.")] = None,
    out: Annotated[
        Path, typer.Option(help="growth: folder of its figure; by default runs/bench.", show_default=False)
    ] = Path("runs/bench"),
    models: Annotated[
        str | None, typer.Option(help="grid: some of mlp,mlp-batchnorm,cnn-28,cnn-32,embedding,bert-tiny.")
    ] = None,
    workloads: Annotated[str | None, typer.Option(help="gpu: resnet18,bert-tiny,minilm-lora, or some.")] = None,
    precision: Annotated[str | None, typer.Option(help="gpu: bf16 (the default), tf32 or fp32.")] = None,
    updates: Annotated[int | None, typer.Option(help="gpu: updates with lanes; by default 100.")] = None,
    inline_updates: Annotated[int | None, typer.Option(help="gpu: updates one by one; by default 12.")] = None,
    compile: Annotated[bool, typer.Option("--compile", help="gpu: also compiled lanes.")] = False,
) -> None:
    """Measure ours against a baseline, in turns, and print the ratios; without NAME, all that this machine can.

    NAME is one or more of job, start, grid, together, workers, engine, aggregation, checkpoint, gpu, lanes, growth.
    """
    from fedfa.bench.base import Options, report
    from fedfa.bench.registry import BENCHMARKS, as_grid, choose, measured

    if listed:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:12} {benchmark.title}")
        return
    special = {
        "models": tuple(models.split(",")) if models else None,
        "workloads": tuple(workloads.split(",")) if workloads else None, "precision": precision, "updates": updates,
        "inline_updates": inline_updates, "compile": compile or None,
    }  # fmt: skip
    given = {name: value for name, value in special.items() if value is not None}
    for name in given:
        able = ("grid",) if name == "models" else ("gpu", "lanes")
        if not set(able) & set(names or []):
            raise ConfigError(f"--{name.replace('_', '-')}: is for one measurement; name it: fedfa bench {able[0]}")
    for name, value in (("repeats", repeats), ("updates", updates), ("inline-updates", inline_updates)):
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be at least 1")
    wanted, remarks = choose(names or [])
    options = Options(quick=quick, repeats=repeats, out=out, **given)

    from fedfa.cli.progress import counted_progress
    from fedfa.files import atomic

    done = []
    try:
        with counted_progress(len(wanted), "measurements") as advance:
            for name, rows in measured(wanted, options, lambda text: advance(text, 0)):
                advance(name)
                done.append((name, rows))
    finally:  # what was measured before an interruption is worth showing
        for name, rows in done:
            print_table(as_grid(name, rows).as_rich())
    for line in remarks:
        print(line)
    if json_file is not None:
        with atomic(json_file) as file:
            file.write(report(command_typed(), dict(done)))
