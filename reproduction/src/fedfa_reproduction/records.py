"""The runs of a reproduction, in few files, and runs in progress.

    OUT/
      records/
        runs.csv                        one row per run: what it was, on what, and how it ended
        settings.jsonl                  one line per run: its experiment, and what else its manifest says
        <workload>/updates.parquet      the rows of all its runs, one after the other, with a column ``run``
        <workload>/evaluations.parquet
        label_counts.parquet            who holds which labels, where a figure shows it
      work/<run>/                       a run under way, or finished and not yet moved into the files above

A run's name is COMPARISON/STRATEGY-seedN, with ``-to-target`` where it ends at the target. Files are replaced as a
whole, ``runs.csv`` last: a run that it does not list is not there.
"""

import csv
import fcntl
import io
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from fedfa.errors import RecordError
from fedfa.files import atomic
from fedfa.runs.run import Run
from fedfa.runs.stop import INTERRUPTED, Ending
from fedfa.runs.store import MANIFEST, UNFINISHED, read_run
from fedfa_reproduction.workloads import workload_of

RECORDS, WORK = "records", "work"
INDEX, SETTINGS = "runs.csv", "settings.jsonl"
NAME = "run"
"""The key of a run's name, in every file and in its manifest."""
COLUMNS: Mapping[str, type] = {"label": str, "seed": int, "seconds": float, "version": int, "wall_seconds": float}
MACHINE: Mapping[str, type] = {
    "fedfa": str, "commit": str, "python": str, "torch": str, "numpy": str, "system": str, "cpus": int
}  # fmt: skip
MORE: Mapping[str, type] = {"executor": str, "target": float, "digest": str, "fingerprint": str, "command": str}
ON_THE_CPU = {"device": "cpu", "precision": "fp32"}
"""Entries that are not taken from a manifest."""
RESULTS: Mapping[str, type] = {"updates": int, "best_accuracy": float, "final_accuracy": float}
"""Summaries of the rows, for readers of the list alone."""
HEADERS = (
    NAME, "workload", "comparison", "strategy", "seed", "ended", "reason", "seconds", "version", "wall_seconds",
    *RESULTS, *ON_THE_CPU, "executor", *MACHINE, "target", "digest", "fingerprint", "command",
)  # fmt: skip
TABLES = ("updates", "evaluations")
LEVEL = 19
"""Compression level: a tenth smaller than the usual one; slow, but files are written once."""
PAGE_BYTES = 1 << 26
"""Runs of one seed share their arrivals; a page of this size lets the compressor use that."""


@dataclass(frozen=True)
class Record:
    """A run without its rows."""

    name: str
    workload: str
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    results: Mapping[str, Any]

    @property
    def comparison(self) -> str:
        return self.name.partition("/")[0]

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def finished(self) -> bool:
        return Ending.parse(self.manifest["ended"]) != INTERRUPTED

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))


class Records:
    """All runs below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files, self.work = folder / RECORDS, folder / WORK
        self._rows: dict[str, dict[str, dict[str, pl.DataFrame]]] = {}
        self._runs: dict[str, Run] = {}
        """Runs whose rows are not in the files."""

    @cached_property
    def by_name(self) -> dict[str, Record]:
        found = {record.name: record for record in read_index(self.files)}
        for name, run in self._under_way():
            if name not in found or _goes_beyond(run, found[name]):
                found[name], self._runs[name] = _record(name, run), run
        return dict(sorted(found.items(), key=lambda item: item[1].order))

    def run(self, name: str) -> Run:
        """A run with its rows."""
        record = self.by_name[name]
        if name not in self._runs:
            updates, evaluations = (self._table(record.workload, table)[name] for table in TABLES)
            self._runs[name] = Run(updates, evaluations, dict(record.manifest), config=dict(record.config))
        return self._runs[name]

    def add(self, name: str, run: Run) -> None:
        """A run that has just ended in its folder under ``work``."""
        self._runs[name] = run = named(name, run)
        self.by_name[name] = _record(name, run)

    def fold(self) -> None:
        """Move the finished runs under ``work`` into the files."""
        finished = {name: run for name, run in self._under_way() if not run.unfinished}
        if not finished:
            return
        with _locked(self.files):
            write_records(self.files, finished)
        for name in finished:
            shutil.rmtree(self.work / name)
            comparison = (self.work / name).parent
            if not any(comparison.iterdir()):
                comparison.rmdir()

    def _under_way(self) -> Iterator[tuple[str, Run]]:
        there = {path.parent for state in (MANIFEST, UNFINISHED) for path in self.work.glob(f"*/*/{state}")}
        for folder in sorted(there):
            name = folder.relative_to(self.work).as_posix()
            yield name, named(name, read_run(folder, or_unfinished=True))

    def _table(self, workload: str, table: str) -> dict[str, pl.DataFrame]:
        known = self._rows.setdefault(workload, {})
        if table not in known:
            known[table] = by_run(read_rows(self.files, workload, table))
        return known[table]


def named(name: str, run: Run) -> Run:
    return replace(run, manifest=run.manifest | {NAME: name})


def _goes_beyond(run: Run, record: Record) -> bool:
    """Whether a run in progress has more rows than the recorded one of its name."""
    return not record.finished and (not run.unfinished or run.seconds > record.manifest["seconds"])


def _record(name: str, run: Run) -> Record:
    results = {"updates": len(run.accepted), "best_accuracy": run.best_accuracy, "final_accuracy": run.final_accuracy}
    return Record(name, workload_of(run.config), run.manifest, run.config, results)


# The files -----------------------------------------------------------------------------------------------------------


def read_index(files: Path) -> list[Record]:
    """All runs in the files, without their rows."""
    index, settings = files / INDEX, files / SETTINGS
    if not index.is_file():
        return []
    try:
        more = {line[NAME]: line for line in map(json.loads, settings.read_text().splitlines())}
        rows = csv.DictReader(io.StringIO(index.read_text()))
        return [_read_record(row, more[row[NAME]]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{files}: cannot be read ({error!r}); restore it, or choose another --out") from error


def _read_record(row: Mapping[str, str], more: Mapping[str, Any]) -> Record:
    results = {key: kind(row[key]) for key, kind in RESULTS.items()}
    return Record(row[NAME], row["workload"], _manifest(row, more["manifest"]), more["config"], results)


def read_rows(files: Path, workload: str, table: str) -> pl.DataFrame:
    path = files / workload / f"{table}.parquet"
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); restore it, or choose another --out") from error


def by_run(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    parts = rows.partition_by(NAME, maintain_order=True, as_dict=True, include_key=False)
    return {str(key[0]): part for key, part in parts.items()}


def write_records(files: Path, runs: Mapping[str, Run]) -> None:
    """Add runs to the files; replaces existing ones."""
    known = {record.name: record for record in read_index(files)}
    added = {name: _record(name, run) for name, run in runs.items()}
    for workload in {record.workload for record in added.values()}:
        own = {name: run for name, run in runs.items() if added[name].workload == workload}
        for table in TABLES:
            path = files / workload / f"{table}.parquet"
            there = by_run(read_rows(files, workload, table)) if path.is_file() else {}
            there |= {name: getattr(run, table) for name, run in own.items()}
            _write_rows(path, there)
    everything = sorted((known | added).values(), key=lambda record: record.order)
    _write_lines(files / SETTINGS, (json.dumps(_settings(record)) for record in everything))
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADERS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_row, everything))
    _write_lines(files / INDEX, text.getvalue().splitlines())


def _write_rows(path: Path, by_name: Mapping[str, pl.DataFrame]) -> None:
    parts = [
        rows.select(pl.lit(name).alias(NAME), pl.all())
        for name, rows in sorted(by_name.items(), key=lambda item: item[0].split("/"))
    ]
    whole = pl.concat(parts)
    with atomic(path) as file:
        whole.write_parquet(
            file, compression="zstd", compression_level=LEVEL, statistics=False, data_page_size=PAGE_BYTES,
            row_group_size=len(whole) or 1,
        )  # fmt: skip


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with atomic(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


@contextmanager
def _locked(files: Path) -> Iterator[None]:
    """One at a time: two commands may put their runs into the same files."""
    files.mkdir(parents=True, exist_ok=True)
    with (files / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _row(record: Record) -> dict[str, Any]:
    manifest = record.manifest
    kind, reason = Ending.parse(manifest["ended"])
    told = {key: manifest.get(key) for key in (*COLUMNS, *MORE)} | {
        key: manifest["machine"].get(key) for key in MACHINE
    }
    told |= {key: manifest.get(key, usual) for key, usual in ON_THE_CPU.items()}
    told |= {NAME: record.name, "workload": record.workload, "comparison": record.comparison}
    return told | {"strategy": told.pop("label"), "ended": kind, "reason": reason} | dict(record.results)


def _settings(record: Record) -> dict[str, Any]:
    """Settings that are not in the row, without those of the comparison, which do not affect the run."""
    told = {NAME, "ended", *COLUMNS, *MORE, *ON_THE_CPU}
    manifest = {key: value for key, value in record.manifest.items() if key not in told}
    manifest["machine"] = {key: value for key, value in manifest["machine"].items() if key not in MACHINE}
    config = {key: value for key, value in record.config.items() if key != "compare"}
    return {NAME: record.name, "config": config, "manifest": manifest}


def _manifest(row: Mapping[str, str], more: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest from the two."""
    row = {**row, "label": row["strategy"]}
    told = {key: kind(row[key]) if row[key] or kind is str else None for key, kind in {**COLUMNS, **MORE}.items()}
    machine = {key: kind(row[key]) for key, kind in MACHINE.items() if row[key]} | more["machine"]
    place = {key: row[key] for key in ON_THE_CPU}
    return {
        **more,
        **told,
        **({} if place == ON_THE_CPU else place),
        "machine": machine,
        "ended": str(Ending(row["ended"], row["reason"])),  # pyright: ignore[reportArgumentType]
        NAME: row[NAME],
    }
