"""The runs of a comparison as one row per label, for the terminal, the page and JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fedfa.report.shapes import by_label, clock_of, number
from fedfa.runs.run import Run

BASELINE = "fedavg"


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One label over its seeds. Unknown values are None, so that JSON stays valid."""

    label: str
    weight: float | None
    """The total weight of one client's difference in the model; None if the rule is not a sum of differences."""
    clock: str
    """virtual, or wall if clients are real."""
    seeds: int
    reached: int
    """Seeds that reached the target."""
    times: Mapping[int, float]
    """Seconds of that clock to the target, for each seed that reached it."""
    time_mean: float | None
    """Their mean, over the seeds that reached it (so are the next three)."""
    time_sd: float | None
    updates_mean: float | None
    rounds_mean: float | None
    best_mean: float | None
    best_sd: float | None
    final_mean: float | None
    final_sd: float | None
    staleness_mean: float | None
    """Mean over the seeds of the mean staleness of accepted updates."""
    staleness_max: int | None
    speedup: float | None
    """FedAvg's mean time to the target over this one's; None unless every seed of both reached it."""

    @property
    def complete(self) -> bool:
        """Every seed reached the target."""
        return self.reached == self.seeds

    def times_over(self, other: "StrategyRow") -> list[float]:
        """Its time over the other's, for each seed that reached the target with both."""
        return seed_by_seed(self.times, other.times)


def seed_by_seed(times: Mapping[int, float | None], others: Mapping[int, float | None]) -> list[float]:
    """Ratios of times, for each seed that has both."""
    pairs = [(time, others.get(seed)) for seed, time in times.items()]
    return [time / other for time, other in pairs if time and other]


def summarise(runs: Sequence[Run], target: float | None) -> list[StrategyRow]:
    """One row per label; without a target nothing counts as reached."""
    groups = by_label(runs)
    baseline = _times(groups.get(BASELINE, []), target)
    return [_row(label, group, target, baseline) for label, group in groups.items()]


def _row(label: str, runs: Sequence[Run], target: float | None, baseline: Sequence[float | None]) -> StrategyRow:
    times = _times(runs, target)
    staleness = [run.accepted["staleness"] for run in runs if len(run.accepted)]
    return StrategyRow(
        label=label,
        weight=runs[0].manifest["update_weight"],
        clock=clock_of(runs),
        seeds=len(runs),
        reached=len(_known(times)),
        times={run.seed: time for run, time in zip(runs, times, strict=True) if time is not None},
        time_mean=_mean(times),
        time_sd=deviation(times),
        updates_mean=None if target is None else _mean(run.updates_to(target) for run in runs),
        rounds_mean=None if target is None else _mean(run.rounds_to(target) for run in runs),
        best_mean=_mean(run.best_accuracy for run in runs),
        best_sd=deviation(run.best_accuracy for run in runs),
        final_mean=_mean(run.final_accuracy for run in runs),
        final_sd=deviation(run.final_accuracy for run in runs),
        staleness_mean=_mean(float(values.to_numpy().mean()) for values in staleness),
        staleness_max=max((int(values.to_numpy().max()) for values in staleness), default=None),
        speedup=_ratio(baseline, times),
    )


def _times(runs: Sequence[Run], target: float | None) -> list[float | None]:
    return [None if target is None else run.time_to(target) for run in runs]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and not math.isnan(value)]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if known else None


def deviation(values: Iterable[float | None]) -> float | None:
    """Sample standard deviation over seeds; None for one value."""
    known = _known(values)
    return stdev(known) if len(known) > 1 else None


def _ratio(baseline: Sequence[float | None], times: Sequence[float | None]) -> float | None:
    above, below = _mean(baseline), _mean(times)
    if above is None or not below or None in baseline or None in times:
        return None
    return above / below


# Text ----------------------------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    """An accuracy in the form of a target: 0.8 is "80 %", 0.825 is "82.5 %"."""
    return f"{100 * value:.4g} %"


def headers(target: float | None) -> tuple[str, ...]:
    """The columns of ``cells``."""
    to_target = () if target is None else (f"Time to\n{percent(target)} (s)", "Speed-up", "Updates", "Rounds")
    return ("Strategy", "Weight", "Seeds", *to_target, "Best\n(%)", "Final\n(%)", "Staleness\nmean / max")


def cells(row: StrategyRow, target: float | None) -> tuple[str, ...]:
    """A row as text, mean ± sd; a second line says which seeds a number leaves out."""
    to_target = () if target is None else _target_cells(row)
    staleness = "–" if row.staleness_mean is None else f"{row.staleness_mean:.1f} / {row.staleness_max}"
    return (
        row.label,
        "–" if row.weight is None else f"{row.weight:.3g}",
        str(row.seeds),
        *to_target,
        accuracy_cell(row.best_mean, row.best_sd),
        accuracy_cell(row.final_mean, row.final_sd),
        staleness,
    )


def _target_cells(row: StrategyRow) -> tuple[str, ...]:
    if row.time_mean is None or row.updates_mean is None or row.rounds_mean is None:
        return ("not reached", "–", "–", "–")
    time = number(row.time_mean) + ("" if row.time_sd is None else f" ± {number(row.time_sd, row.time_mean)}")
    return (
        time if row.complete else f"{time}\n{row.reached} of {row.seeds} reached",
        "–" if row.speedup is None else f"{row.speedup:.2f}×",
        f"{row.updates_mean:,.0f}",
        number(row.rounds_mean),
    )


def accuracy_cell(mean: float | None, sd: float | None = None) -> str:
    """In per cent, mean ± sd."""
    if mean is None:
        return "–"
    return f"{100 * mean:.1f}" + ("" if sd is None else f" ± {100 * sd:.1f}")


def explanation(rows: Sequence[StrategyRow], target: float | None) -> str:
    """How to read the table."""
    text = (
        "Mean ± standard deviation over seeds; accuracies on the test data; staleness in versions; weight is the total "
        "weight of one client's difference in the model (– if the rule is not a sum of differences)."
    )
    if target is None:
        return text
    clocks = " or ".join(sorted({row.clock for row in rows})).replace("wall", "wall seconds")
    return (
        f"{text} Times are {clocks}; times, updates and rounds to {percent(target)} count only the seeds that reached "
        f"it; speed-up is the mean time of {BASELINE} over that of the row, where all seeds of both reached it."
    )


def as_rich(rows: Sequence[StrategyRow], target: float | None) -> Table:
    """For the terminal; fits into 100 columns and wraps, but never cuts, in fewer."""
    table = Table(box=SIMPLE_HEAD, caption=explanation(rows, target), caption_justify="left", collapse_padding=True)
    for position, header in enumerate(headers(target)):
        table.add_column(header, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, cells(row, target)))
    return table
