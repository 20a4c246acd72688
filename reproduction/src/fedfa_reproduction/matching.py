"""Finds the recorded run for a planned one: its own, or a longer one of the same settings, cut at its end."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from fedfa.errors import ConfigError
from fedfa.experiments.config import Experiment, from_table
from fedfa.experiments.points import Point, ingredients
from fedfa.runs.run import Run
from fedfa.runs.stop import Stop
from fedfa_reproduction.measures import cut, end_under, given_up
from fedfa_reproduction.records import Record, Records

UNTOUCHED = ("compare.", "data.folder", "engine.threads", "engine.check", "stop.diverged")
"""Settings that do not affect a run, or only when it is given up."""
OF_THE_MACHINE = {
    "model.weights",
    *(f"engine.{key}" for key in ("executor", "workers", "device", "precision", "compile")),
}
"""Settings that depend on the available data and weights; the records hold them."""
RETIRED = (("model", "recalibrate"),)
"""Settings that fedfa no longer has, but recorded runs were made with."""
BEFORE: Mapping[str, Mapping[str, Any]] = {"data": {"size_sigma": 0.0}}
"""Settings that the first recorded runs lack, with their only values then, by table."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A requested run."""

    name: str
    point: Point
    priority: tuple[int, int] = (0, 0)
    """The lowest is made first."""
    retired: Mapping[str, Any] = field(default_factory=dict)
    """Settings that fedfa no longer has, by dotted key: it can be shown, but not made."""

    @property
    def experiment(self) -> Experiment:
        return self.point.experiment

    @property
    def seed(self) -> int:
        return self.point.experiment.seed


Pair = tuple[PlannedRun, PlannedRun]
"""A requested run, and the one that continues beyond the target."""


class Answers:
    """Finds recorded runs for planned ones.

    ``only_show``: data and weights need not be there, and runs may be computed in another way.
    """

    def __init__(self, records: Records, only_show: bool = False) -> None:
        self.records, self.only_show = records, only_show
        self._digests: dict[str, str] = {}
        """Fingerprints of data and initial model, by their settings; empty if data or weights are missing."""
        self._ends: dict[tuple[str, Stop], bool] = {}
        self._wanted: WeakKeyDictionary[PlannedRun, str] = WeakKeyDictionary()

    def __contains__(self, planned: PlannedRun) -> bool:
        """Whether there is a run for the planned one; its settings and data are checked when it is used."""
        return self._own(planned) is not None or next(self._longer(planned), None) is not None

    def fairly(self, planned: PlannedRun) -> bool:
        """Whether there is a run for it, not only because that run was slow to a target.

        Runs that end at a target go beyond a given time only if they are late; counting only them would be biased.
        """
        to_target = planned.experiment.stop.accuracy is not None
        return self._own(planned) is not None or any(
            to_target or self.records.run(name).ending.kind != "accuracy" for name in self._longer(planned)
        )

    def take(self, planned: PlannedRun) -> Run | None:
        """The planned run itself, or a longer one, cut at the planned end; None if there is neither.

        A run of the same name with other settings or other data is refused.
        """
        own = self._own(planned)
        if own is None:
            same = (name for name in self._longer(planned) if self._same_data(planned, name))
            name = next(same, None)
            return None if name is None else cut(self.records.run(name), planned.experiment.stop)
        here, there = settings(planned.experiment.as_table()) | dict(planned.retired), recorded(own)
        for key in sorted(here.keys() | there.keys()):
            if here.get(key) != there.get(key) and not (self.only_show and key in OF_THE_MACHINE):
                raise ConfigError(
                    f"{self.records.folder}: holds a run {own.name} with {key} = {there.get(key)}, now "
                    f"{here.get(key)}; choose another --out"
                )
        if not self._same_data(planned, own.name):
            raise ConfigError(
                f"{self.records.folder}: holds a run {own.name} on other data or weights; choose another --out"
            )
        return self.records.run(own.name)

    def begun(self, planned: PlannedRun) -> Run | None:
        """If there is no such run: the run with its settings that went furthest."""
        same = (self.records.run(name) for name in self._of_its_settings(planned) if self._same_data(planned, name))
        return max(same, key=lambda run: run.seconds, default=None)

    def made(self, planned: PlannedRun, run: Run) -> None:
        """A run that has just been made."""
        self.records.add(planned.name, run)
        self._digests[ingredients(planned.experiment)] = run.manifest["digest"]
        self._file(self.records.by_name[planned.name])

    def _own(self, planned: PlannedRun) -> Record | None:
        record = self.records.by_name.get(planned.name)
        return record if record is not None and record.finished else None

    def _longer(self, planned: PlannedRun) -> Iterator[str]:
        """Runs with its settings that went at least as far as planned."""
        stop = planned.experiment.stop
        for name in self._of_its_settings(planned):
            key = name, stop
            if key not in self._ends:
                run = self.records.run(name)
                self._ends[key] = given_up(run) or end_under(run, stop) is not None
            if self._ends[key]:
                yield name

    def _of_its_settings(self, planned: PlannedRun) -> Iterator[str]:
        """Runs with the same course, of any length: under other names, and interrupted ones."""
        if planned not in self._wanted:
            self._wanted[planned] = what_decides(planned.experiment, planned.retired, self.only_show)
        for name in self._by_settings.get(self._wanted[planned], ()):
            if name != planned.name or not self.records.by_name[name].finished:
                yield name

    @cached_property
    def _by_settings(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for record in self.records.by_name.values():
            if (key := self._settings_of(record)) is not None:
                found.setdefault(key, []).append(record.name)
        return found

    def _file(self, record: Record) -> None:
        if (key := self._settings_of(record)) is not None:
            names = self._by_settings.setdefault(key, [])
            names[:] = sorted({*names, record.name}, key=lambda name: name.split("/"))

    def _settings_of(self, record: Record) -> str | None:
        """None if the run was made with an unknown setting."""
        try:
            experiment, retired = recorded_experiment(record)
            return what_decides(experiment, retired, self.only_show)
        except ConfigError:
            return None

    def _same_data(self, planned: PlannedRun, name: str) -> bool:
        """Whether a run was made on the planned one's data and initial model; to show it, they need not be there."""
        key = ingredients(planned.experiment)
        if key not in self._digests:
            try:
                self._digests[key] = planned.experiment.make_task().digest(planned.seed)
            except ConfigError:
                if not self.only_show:
                    raise
                self._digests[key] = ""
        return self._digests[key] in ("", self.records.by_name[name].manifest["digest"])


def recorded(record: Record) -> dict[str, Any]:
    """A run's settings; settings that did not exist then have their value of then, or their default."""
    try:
        experiment, retired = recorded_experiment(record)
    except ConfigError:
        return settings(record.config)
    return settings(experiment.as_table()) | retired


def recorded_experiment(record: Record) -> tuple[Experiment, dict[str, Any]]:
    """The experiment of a run, and its settings that fedfa no longer has, by dotted key."""
    config = {key: dict(value) if isinstance(value, Mapping) else value for key, value in record.config.items()}
    if config.get("engine", {}).get("workers") == 0:
        config["engine"]["workers"] = "auto"  # the same, as it is written now
    gone = [(table, key) for table, key in RETIRED if key in config.get(table, {})]
    retired = {f"{table}.{key}": config[table].pop(key) for table, key in gone}
    return from_table(config | {name: dict(before) | config.get(name, {}) for name, before in BEFORE.items()}), retired


def settings(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted key, except those that do not affect a run, or only when it is given up."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= settings(value, f"{path}.")
        elif value is not None and not path.startswith(UNTOUCHED):
            flat[path] = list(value) if isinstance(value, tuple) else value
    return flat


def what_decides(experiment: Experiment, retired: Mapping[str, Any], only_show: bool) -> str:
    """All settings that determine a run's course, but not its end; defaults are replaced by their values."""
    strategy = experiment.make_strategy()
    own = {"name": strategy.name} | strategy.settings()
    if (step := getattr(strategy, "step_size", None)) is not None:
        own["server_lr"] = step
    flat = settings(experiment.as_table() | {"strategy": own}) | dict(retired)
    left_out = {key for key in flat if key.startswith("stop.") or (only_show and key in OF_THE_MACHINE)}
    return json.dumps({key: value for key, value in sorted(flat.items()) if key not in left_out})
