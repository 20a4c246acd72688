"""The request, and the experiments that follow from it."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from fedfa.errors import ConfigError, require
from fedfa.experiments.config import Experiment, from_table
from fedfa.settings import override, parse_override
from fedfa_reproduction.base import Comparison
from fedfa_reproduction.matching import Answers, Pair
from fedfa_reproduction.records import Records
from fedfa_reproduction.workloads import EMBEDDED, Scale, Split, Workload

ADJUSTABLE = {"stop.seconds", "stop.diverged_updates", "local.epochs", "local.lr"}
"""Settings of a recipe that a user may still change."""


def no_progress(total: int) -> AbstractContextManager[Callable[[str], None]]:
    return nullcontext(lambda text: None)


@dataclass(frozen=True)
class Study:
    """The scale, the workloads and the seeds, with the existing runs."""

    scale: Scale
    workloads: tuple[Workload, ...]
    seeds: tuple[int, ...]
    """The seeds that should have runs."""
    folder: Path
    overrides: tuple[str, ...] = ()
    only_show: bool = False
    """Nothing is run, and only the records are needed."""
    shared: Answers | None = field(default=None, compare=False, repr=False)
    """The cached results of a study that differs only in its workloads."""
    planned: WeakKeyDictionary[Comparison, list[Pair]] = field(
        init=False, compare=False, repr=False, default_factory=WeakKeyDictionary
    )
    """The runs of comparisons, computed once."""

    @cached_property
    def answers(self) -> Answers:
        return self.shared or Answers(Records(self.folder), self.only_show)

    @property
    def records(self) -> Records:
        return self.answers.records

    @property
    def data(self) -> str:
        """The folder with data sets and weights; empty if none was named."""
        return self.given("data.folder") or os.environ.get("FEDFA_DATA", "")

    def given(self, key: str) -> str:
        """The user's value for this key; empty if there is none."""
        found = [value for path, value in map(parse_override, self.overrides) if ".".join(path) == key]
        return str(found[-1]) if found else ""

    def weights(self, workload: Workload) -> str:
        """The pretrained weights to use: the first of the workload's that exist, else its first choice."""
        names = workload.smoke_weights if self.scale == "smoke" else workload.weights
        there = [name for name in names if self.data and (Path(self.data).expanduser() / name).is_dir()]
        return (there or [*names, ""])[0]

    def of(self, workloads: Sequence[Workload]) -> "Study":
        """The same on these workloads."""
        return replace(self, workloads=tuple({one.name: one for one in workloads}.values()), shared=self.answers)

    def splits(self) -> list[tuple[Workload, Split]]:
        return [(workload, split) for workload in self.workloads for split in workload.splits]

    def mild_splits(self) -> list[tuple[Workload, Split]]:
        """The mildest split of each workload, for results that the paper shows on one unnamed split."""
        return [(workload, workload.splits[-1]) for workload in self.workloads]

    def all_seeds(self) -> tuple[int, ...]:
        """The seeds; if runs are only shown, also other seeds with runs."""
        there = {record.seed for record in self.records.by_name.values()} if self.only_show else set()
        return (*self.seeds, *sorted(there - set(self.seeds)))

    def ends_at_target(self, comparison: Comparison) -> bool:
        return comparison.ends_at_target and self.scale == "full"

    def experiment(
        self, workload: Workload, split: Split, budget: Mapping[str, Any] | None = None, **changes: Any
    ) -> Experiment:
        """The experiment of a split; changes are dotted keys with __ for the dot, and win over the user's overrides.

        ``budget`` holds settings for the full scale, by dotted key, which the user may override.
        """
        table = workload.table(split, self.scale)
        for key, value in (budget or {}).items() if self.scale == "full" else ():
            override(table, key.split("."), value)
        if weights := self.weights(workload):
            override(table, ["model", "weights"], weights)
        fixed = {key.replace("__", ".") for key in changes} | split.settings.keys() | {"seed", "name", "data.dataset"}
        for text in self.overrides:
            path, value = parse_override(text)
            self._check_free(text, ".".join(path), fixed)
            if not (workload is EMBEDDED and path == ["data", "folder"]):
                override(table, path, value)
        for key, value in changes.items():
            override(table, key.split("__"), value)
        try:
            return from_table(table, f"recipe {split.name}")
        except ConfigError as error:
            raise ConfigError(f"{split.name}: {error}") from error

    @staticmethod
    def _check_free(text: str, name: str, fixed: set[str]) -> None:
        """Raise unless the user may set this key."""
        why = "use --seeds" if name == "seed" else "this recipe sets it itself; leave it out"
        taken = name in fixed - ADJUSTABLE or (name.startswith("weather.") and "weather" in fixed)
        require(not taken, f"--set {text}: {why}")
