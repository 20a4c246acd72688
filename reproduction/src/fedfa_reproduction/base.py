"""The types that the parts of the reproduction share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from fedfa.experiments.config import Experiment
from fedfa.report.grid import Grid
from fedfa.report.shapes import Figure
from fedfa.runs.run import Run

if TYPE_CHECKING:
    from fedfa_reproduction.study import Study

LAST_LEADING = 3


class Stage(IntEnum):
    """The order of runs: the most informative first, because the time may end at any point."""

    MILD_SPLIT = 0
    """Every strategy to its target."""
    SAME_TIME = 1
    """Every strategy on the hard split, for part of its time."""
    SECOND_SEEDS = 2
    """Of the leading strategies on the mild split."""
    WINDOWS = 3
    TEXTS = 4
    """Every strategy on texts."""
    SEARCH = 5
    """The search for a good step."""
    UNEQUAL_WORK = 6
    REFILL = 7
    MIXING = 8
    CONCURRENCY = 9
    HARD_SPLIT = 10
    """To its target, which takes long."""
    TO_THE_END = 11
    """Beyond the target, for the best accuracy."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy in the form of ``fedfa compare``, and its row in the paper's tables."""

    key: str
    """Unique within a comparison."""
    spec: str
    title: str
    row: str
    """The strategy in the paper's tables; for strategies that are not in the paper there are no numbers."""
    turn: int = 0
    """Runs of the lowest rank are made first."""

    @property
    def leading(self) -> bool:
        return self.turn <= LAST_LEADING


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies under one setting."""

    name: str
    """The first part of its runs' names; comparisons of the same name share their runs."""
    title: str
    experiment: Experiment
    contenders: tuple[Contender, ...]
    stage: Stage = Stage.MILD_SPLIT
    ends_at_target: bool = False
    """Its runs are not needed after the target: at full scale they end there."""
    most_updates: Mapping[bool, int] = field(default_factory=dict)
    """Updates after which a run ends at the latest, for synchronous strategies (True) and for the others (False)."""
    retired: Mapping[str, Any] = field(default_factory=dict)
    """Settings that fedfa no longer has, by dotted key: recorded runs with them are shown, and no more are made."""

    @property
    def target(self) -> float:
        return self.experiment.compare.target


Results = Sequence[tuple[Comparison, Sequence[Run]]]


@dataclass(frozen=True)
class Section:
    """The output of a recipe."""

    name: str
    title: str
    text: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """The same numbers for programs, JSON-ready."""
    seeds: Sequence[int] = ()
    """Of its runs; empty if it needs none."""


@dataclass(frozen=True)
class Recipe:
    """One table or figure: the comparisons it needs, and the function that shows them."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """The paper's workloads in it."""
    comparisons: Callable[["Study"], Sequence[Comparison]]
    show: Callable[["Study", Results], Section]
