"""The runs that are there: a point's own, or a longer one of the same settings, which tells all that its own would."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from fedfa.comparison import Point, ingredients
from fedfa.errors import ConfigError
from fedfa.experiment import Experiment, from_table
from fedfa.record import MANIFEST, UNFINISHED, Run, is_finished, read_config, read_run

UNTOUCHED = ("compare.", "data.folder", "engine.threads", "engine.check", "stop.diverged")
OF_THE_MACHINE = {
    "model.weights",
    *(f"engine.{key}" for key in ("executor", "workers", "device", "precision", "compile")),
}
"""What depends on what was at hand; the records tell it."""


@dataclass(frozen=True)
class Shelf:
    """A folder of contests with their runs."""

    folder: Path
    only_show: bool = False
    """Neither the data nor the weights need be there, nor need runs be computed in the same way."""
    _digests: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """What was hashed before: runs of one setting share their data."""
    _listed: dict[int, list[Path]] = field(default_factory=dict, compare=False, repr=False)

    def __contains__(self, point: Point) -> bool:
        """Whether the point is answered; what its run was made with is checked when it is taken."""
        return is_finished(point.folder) or next(self._longer(point), None) is not None

    def fairly(self, point: Point) -> bool:
        """Whether the point is answered whatever became of its run: not just because it was slow to a target.

        Of runs that end at a target, those go beyond a given time that are late there; to count them alone would be
        to choose.
        """
        to_target = point.experiment.stop.accuracy is not None
        return is_finished(point.folder) or any(
            to_target or (run.whole or run).manifest["ended"] != "accuracy" for run in self._longer(point)
        )

    def take(self, point: Point) -> Run | None:
        """The point's own run, or a longer one, cut where the point's would have ended; None where neither is there.

        In the point's own folder, a run with other settings or on other data is refused.
        """
        if not is_finished(point.folder):
            return next((run for run in self._longer(point) if self._same_data(point, run)), None)
        run = read_run(point.folder)
        here, there = settings(point.experiment.as_table()), recorded(run)
        for key in sorted(here.keys() | there.keys()):
            if here.get(key) != there.get(key) and not (self.only_show and key in OF_THE_MACHINE):
                raise ConfigError(
                    f"{point.folder}: holds a run with {key} = {there.get(key)}, now {here.get(key)}; "
                    "choose another --out"
                )
        if not self._same_data(point, run):
            raise ConfigError(f"{point.folder}: holds a run on other data or weights; choose another --out")
        return run

    def begun(self, point: Point) -> Run | None:
        """Of a point for which there is nothing to take: the run that went farthest on its course."""
        runs = [run for run in self._on_course(point) if self._same_data(point, run)]
        return max(runs, key=lambda run: run.seconds, default=None)

    def _longer(self, point: Point) -> Iterator[Run]:
        """Runs that took the point's course as far as it goes or further, cut at its end."""
        for run in self._on_course(point):
            if (cut := run.cut(point.experiment.stop)) is not None:
                yield cut

    def _on_course(self, point: Point) -> Iterator[Run]:
        """Runs that took the point's course, however far: in other folders, and those that were interrupted."""
        wanted = _course(point.experiment, self.only_show)
        for folder in self._recorded(point.experiment.seed):
            own = folder == point.folder and is_finished(folder)
            if not own and _course_of(folder, self.only_show) == wanted:
                yield read_run(folder, or_unfinished=True)

    def _recorded(self, seed: int) -> list[Path]:
        """The folders of a seed's runs; looked for anew each time, unless nothing is made meanwhile."""
        if seed not in self._listed or not self.only_show:
            there = (self.folder.glob(f"*/*-seed{seed}*/{name}") for name in (MANIFEST, UNFINISHED))
            self._listed[seed] = sorted({manifest.parent for manifest in chain.from_iterable(there)})
        return self._listed[seed]

    def _same_data(self, point: Point, run: Run) -> bool:
        """Whether a run was made on the point's data and initial model; to show it, they need not be there."""
        key = ingredients(point.experiment)
        if key not in self._digests:
            try:
                self._digests[key] = point.experiment.make_task().digest(point.experiment.seed)
            except ConfigError:
                if not self.only_show:
                    raise
                self._digests[key] = ""
        return self._digests[key] in ("", run.manifest["digest"])


def recorded(run: Run) -> dict[str, Any]:
    """A run's settings; those that came later than it are what they are by default."""
    try:
        return settings(from_table(run.config).as_table())
    except ConfigError:  # made with a setting that is gone
        return settings(run.config)


def settings(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted key, but for those that change nothing of a run, or only when to give it up."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= settings(value, f"{path}.")
        elif value is not None and not path.startswith(UNTOUCHED):
            flat[path] = list(value) if isinstance(value, tuple) else value
    return flat


@cache
def _course_of(folder: Path, only_show: bool) -> dict[str, Any]:
    """The course of a run, which never changes; empty where it cannot be told."""
    try:
        config = read_config(folder)
        return _course(from_table(config), only_show) if config else {}
    except (ConfigError, OSError, ValueError):  # made with a setting that is gone, or damaged
        return {}


def _course(experiment: Experiment, only_show: bool) -> dict[str, Any]:
    """All that decides how a run goes, but not where it ends; a default counts as what it comes to."""
    strategy = experiment.make_strategy()
    own = {"name": strategy.name} | strategy.settings()
    if (step := getattr(strategy, "step_size", None)) is not None:
        own["server_lr"] = step
    flat = settings(experiment.as_table() | {"strategy": own})
    left_out = {key for key in flat if key.startswith("stop.") or (only_show and key in OF_THE_MACHINE)}
    return {key: value for key, value in flat.items() if key not in left_out}
