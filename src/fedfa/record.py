"""What a run leaves behind, and how it survives a crash.

    runs/<name>/
      config.toml          the resolved experiment, where it came from one
      updates.parquet      one row per arrival
      evaluations.parquet  one row per evaluation
      clients.parquet      one row per (client, label): examples
      manifest.json        versions, seed, machine, wall time, how it ended
      unfinished.json      instead of the manifest, where the run was interrupted: the same of its rows so far
      checkpoint.npz       only while the run is unfinished
      live.json            only while the run is unfinished: what ``fedfa watch`` shows of it

Every file is written beside its final name, flushed to disk (but for the last) and renamed, so a reader sees all of it
or none.
Rows reach ``*.parquet`` at the end, all of them, from memory or from the checkpoint: a resumed run therefore ends in
the same bytes as one that was never interrupted.
"""

import json
import math
import os
import platform
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl

import fedfa
from fedfa.errors import RecordError, require
from fedfa.rows import ACCEPTED
from fedfa.source import source_commit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERRUPTED = "interrupted"
"""How a run ended that was asked to stop before its end."""


@dataclass(frozen=True)
class Run:
    """A run, as a rule to its end: its rows, and the questions one asks of them."""

    updates: pl.DataFrame
    evaluations: pl.DataFrame
    manifest: dict[str, Any]
    clients: pl.DataFrame = field(default_factory=pl.DataFrame)
    config: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    model: np.ndarray | None = None
    """The final global model; kept in memory only."""

    @property
    def label(self) -> str:
        return self.manifest["label"]

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def unfinished(self) -> bool:
        """Whether there is more to come: it was interrupted."""
        return self.manifest["ended"] == INTERRUPTED

    def labelled(self, label: str) -> "Run":
        return replace(self, manifest=self.manifest | {"label": label})

    def _first_at(self, accuracy: float) -> dict[str, Any] | None:
        hits = self.evaluations.filter(pl.col("accuracy") >= accuracy)
        return hits.row(0, named=True) if len(hits) else None

    def time_to(self, accuracy: float) -> float | None:
        """Virtual seconds until an evaluation first showed this accuracy; None if none did."""
        first = self._first_at(accuracy)
        return None if first is None else first["seconds"]

    def updates_to(self, accuracy: float) -> int | None:
        """Accepted updates until an evaluation first showed this accuracy; None if none did."""
        first = self._first_at(accuracy)
        return None if first is None else first["updates"]

    def rounds_to(self, accuracy: float) -> float | None:
        """Rounds (see ``round_size`` in the manifest) until this accuracy; None if it was not reached."""
        updates = self.updates_to(accuracy)
        return None if updates is None else updates / self.manifest["round_size"]

    @property
    def rounds(self) -> float:
        """Rounds at the end."""
        return len(self.accepted) / self.manifest["round_size"]

    @property
    def accepted(self) -> pl.DataFrame:
        return self.updates.filter(pl.col("outcome") == ACCEPTED)

    @property
    def best_accuracy(self) -> float:
        best = self.evaluations["accuracy"].max()
        return math.nan if best is None else float(best)  # pyright: ignore[reportArgumentType]

    @property
    def final_accuracy(self) -> float:
        return float(self.evaluations["accuracy"][-1]) if len(self.evaluations) else math.nan

    @property
    def seconds(self) -> float:
        """Virtual time at the end."""
        return self.manifest["seconds"]

    def summary(self, target: float | None = None) -> dict[str, Any]:
        """The run in a few numbers; JSON-ready."""
        staleness = self.accepted["staleness"]
        mean, most = (staleness.mean(), staleness.max()) if len(staleness) else (0.0, 0)
        numbers = {
            "label": self.label,
            "strategy": self.manifest["strategy"],
            "seed": self.seed,
            "ended": self.manifest["ended"],
            "seconds": self.seconds,
            "updates": len(self.accepted),
            "not_accepted": len(self.updates) - len(self.accepted),
            "version": self.manifest["version"],
            "best_accuracy": self.best_accuracy,
            "final_accuracy": self.final_accuracy,
            "mean_staleness": mean,
            "max_staleness": most,
            "num_frozen": self.manifest.get("num_frozen", 0),
            "bytes_up": int(self.updates["bytes_up"].sum()),
            "bytes_down": int(self.updates["bytes_down"].sum()),
            "wall_seconds": self.manifest["wall_seconds"],
        }
        if target is not None:
            numbers |= {
                "target": target,
                "time_to_target": self.time_to(target),
                "updates_to_target": self.updates_to(target),
                "rounds_to_target": self.rounds_to(target),
            }
        return numbers

    def plot(self, against: str = "seconds") -> "Figure":
        """Accuracy against ``seconds`` or ``updates``, as a matplotlib figure."""
        from fedfa.report.figures import accuracy_figure
        from fedfa.report.static import draw

        return draw(accuracy_figure([self], against))


# Folders -------------------------------------------------------------------------------------------------------------


MADE_WITH = ("strategy", "weather", "task", "num_clients", "local", "stop")
NEEDED = {*MADE_WITH, "label", "seed", "seconds", "version", "ended", "round_size", "wall_seconds"}
"""Without these a manifest is not that of a run."""


MANIFEST, UNFINISHED, CHECKPOINT = "manifest.json", "unfinished.json", "checkpoint.npz"


def is_finished(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def is_begun(folder: Path) -> bool:
    """Whether something of a run is there that has not come to its end."""
    return not is_finished(folder) and any((folder / name).is_file() for name in (UNFINISHED, CHECKPOINT))


def write_run(folder: Path, run: Run) -> None:
    """Write a run; the manifest last, for its presence means "complete". Of an interrupted run the longest is kept."""
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
    """Whether an interrupted run is there that went farther than this one; it may have been begun again."""
    try:
        before = read_run(folder, or_unfinished=True)
    except RecordError:
        return False
    return before.manifest.get("fingerprint") == run.manifest.get("fingerprint") and before.seconds > run.seconds


def read_run(folder: str | Path, *, or_unfinished: bool = False) -> Run:
    """Read a finished run; also an interrupted one, as far as it went, if that will do."""
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
    """The experiment that a run came from; empty where it came from none."""
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
    """Runs of one label are its seeds; where they differ in more than the seed, each gets its folder's name."""
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


def machine() -> dict[str, Any]:
    """Versions and hardware that a number should be quoted with."""
    import torch

    return {
        "fedfa": fedfa.__version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f".{path.name}.*"):  # by a process that was killed while writing
        abandoned.unlink(missing_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
