"""The files of a run, and how they survive a crash.

    runs/<name>/
      config.toml          the resolved experiment, where it came from one
      updates.parquet      one row per arrival
      evaluations.parquet  one row per evaluation
      clients.parquet      one row per (client, label): examples
      manifest.json        versions, seed, machine, wall time, how it ended
      unfinished.json      instead of the manifest, if the run was interrupted: the same for its rows so far
      checkpoint.npz       only while the run is unfinished
      live.json            only while the run is unfinished: what ``fedfa watch`` shows of it

Every file is written beside its final name, flushed to disk (except the last) and renamed, so a reader sees all of it
or none. At the end all rows are written to ``*.parquet``, from memory or from the checkpoint. A resumed run therefore
ends in the same bytes as one that was never interrupted.
"""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fedfa.errors import RecordError, require
from fedfa.files import atomic
from fedfa.runs.run import Run

if TYPE_CHECKING:
    pass


# Folders -------------------------------------------------------------------------------------------------------------


MADE_WITH = ("strategy", "weather", "task", "num_clients", "local", "stop")
NEEDED = {*MADE_WITH, "label", "seed", "seconds", "version", "ended", "round_size", "wall_seconds"}
"""Keys that every run's manifest has."""


MANIFEST, UNFINISHED, CHECKPOINT = "manifest.json", "unfinished.json", "checkpoint.npz"


def is_finished(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def is_begun(folder: Path) -> bool:
    """Whether the folder has files of a run that is not finished."""
    return not is_finished(folder) and any((folder / name).is_file() for name in (UNFINISHED, CHECKPOINT))


def write_run(folder: Path, run: Run) -> None:
    """Write a run; the manifest last, for it means "complete". An interrupted run never replaces a longer one."""
    if run.unfinished and _went_farther_before(folder, run):
        return
    with atomic(folder / "updates.parquet") as file:
        run.updates.write_parquet(file, statistics=False)
    with atomic(folder / "evaluations.parquet") as file:
        run.evaluations.write_parquet(file, statistics=False)
    with atomic(folder / "clients.parquet") as file:
        run.clients.write_parquet(file, statistics=False)
    with atomic(folder / (UNFINISHED if run.unfinished else MANIFEST)) as file:
        file.write((json.dumps(run.manifest, indent=2) + "\n").encode())
    if not run.unfinished:
        for spent in (UNFINISHED, CHECKPOINT, f".{CHECKPOINT}.*", "*live.json"):
            for path in folder.glob(spent):
                path.unlink(missing_ok=True)


def _went_farther_before(folder: Path, run: Run) -> bool:
    """Whether the folder has an interrupted run that went further than this one, which may be a restart."""
    try:
        before = read_run(folder, or_unfinished=True)
    except RecordError:
        return False
    return before.manifest.get("fingerprint") == run.manifest.get("fingerprint") and before.seconds > run.seconds


def read_run(folder: str | Path, *, or_unfinished: bool = False) -> Run:
    """Read a finished run or, if allowed, the rows so far of an interrupted one."""
    folder = Path(folder)
    names = [MANIFEST, UNFINISHED] if or_unfinished else [MANIFEST]
    told_in = next((folder / name for name in names if (folder / name).is_file()), None)
    if told_in is None:
        state = (
            "an unfinished run; continue it with the command that began it, and --resume"
            if is_begun(folder)
            else "no run"
        )
        raise RecordError(f"{folder}: holds {state}")
    try:
        manifest = json.loads(told_in.read_text())
        if not isinstance(manifest, dict) or not manifest.keys() >= NEEDED:
            raise ValueError(f"its {told_in.name} is not that of a run")
        return Run(
            updates=pl.read_parquet(folder / "updates.parquet"),
            evaluations=pl.read_parquet(folder / "evaluations.parquet"),
            clients=pl.read_parquet(folder / "clients.parquet"),
            manifest=manifest,
            config=read_config(folder),
            folder=folder,
        )
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise RecordError(f"{folder}: cannot be read ({error}); run it again into a new folder") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The experiment of a run; empty if it has none."""
    file = folder / "config.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def find_runs(folder: str | Path) -> list[Run]:
    """The run in this folder, or all runs below it, by name; interrupted ones say so in their labels."""
    folder = Path(folder)
    require(folder.is_dir(), f"{folder}: no such folder; give one that a run or a comparison wrote")
    places = sorted({manifest.parent for name in (MANIFEST, UNFINISHED) for manifest in folder.rglob(name)})
    if not places:
        if next(folder.rglob(CHECKPOINT), None) is not None:
            how = "wait for it, or go on with the command that began it, and --resume"
            raise RecordError(f"{folder}: holds no finished run yet; {how}")
        raise RecordError(f"{folder}: holds no run; give a folder that a run or a comparison wrote")
    found = (read_run(place, or_unfinished=True) for place in places)
    return _told_apart([run.labelled(f"{run.label} (unfinished)") if run.unfinished else run for run in found])


def find_run(folder: str | Path) -> Run:
    """The one finished run in this folder."""
    folder = Path(folder)
    require(folder.is_dir(), f"{folder}: no such folder; give one that 'fedfa run' wrote")
    places = sorted(manifest.parent for manifest in folder.rglob(MANIFEST))
    if folder in places or is_begun(folder):
        return read_run(folder)
    if not places:
        raise RecordError(f"{folder}: holds no finished run; give a folder that 'fedfa run' wrote")
    few = ", ".join(map(str, places[:3])) + (", ..." if len(places) > 3 else "")
    raise RecordError(f"{folder}: is no run, but holds {len(places)}; give one of them: {few}")


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs of one label are its seeds; if they differ in more than the seed, each label gets its folder's name."""
    settings: dict[str, set[str]] = {}
    seeds: dict[str, list[int]] = {}
    for run in runs:
        made_with = {key: run.manifest[key] for key in MADE_WITH}
        settings.setdefault(run.label, set()).add(json.dumps(made_with, sort_keys=True))
        seeds.setdefault(run.label, []).append(run.seed)
    mixed = {label for label in settings if len(settings[label]) > 1 or len(set(seeds[label])) < len(seeds[label])}
    return [
        run.labelled(f"{run.label} ({run.folder.name})") if run.label in mixed and run.folder is not None else run
        for run in runs
    ]
