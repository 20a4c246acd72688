"""What the parts of the reproduction pass to each other."""

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
    """In which order runs are made: the most informative first, so that the time may be over at any point."""

    MILD_SPLIT = 0
    """Every strategy to its target."""
    SAME_TIME = 1
    """Every strategy on the hard split, for a part of the way."""
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
    """To its target, which is far."""
    TO_THE_END = 11
    """On past the target, for the best accuracy."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy as ``fedfa compare`` takes it, and the row of the paper's tables that it answers."""

    key: str
    """Its own within a comparison."""
    spec: str
    title: str
    row: str
    """The strategy in the paper's tables; one that the paper does not have has no numbers there."""
    turn: int = 0
    """Whose runs are made first: the lowest."""

    @property
    def leading(self) -> bool:
        return self.turn <= LAST_LEADING


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies side by side under one setting."""

    name: str
    """The first part of its runs' names; comparisons of the same name share their runs."""
    title: str
    experiment: Experiment
    contenders: tuple[Contender, ...]
    stage: Stage = Stage.MILD_SPLIT
    ends_at_target: bool = False
    """Nothing is asked of its runs after the target: at full scale they end there."""
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
    """What a recipe shows."""

    name: str
    title: str
    text: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """The same numbers for programs, JSON-ready."""
    seeds: Sequence[int] = ()
    """Of the runs behind it; empty where it needs none."""


@dataclass(frozen=True)
class Recipe:
    """One table or figure: the comparisons it needs, and what it makes of them."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """The workloads that the paper has in it."""
    comparisons: Callable[["Study"], Sequence[Comparison]]
    show: Callable[["Study", Results], Section]
