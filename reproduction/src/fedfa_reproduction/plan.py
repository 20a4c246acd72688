"""The list of needed runs, each once, in the order in which they are made.

The first seed goes through all stages, then the next one. Only the leading strategies on the mild split get their
other seeds earlier. Within a stage the leading strategies come first. On the hard split, where a run may take as long
as fifteen short ones, the others come in the last stage.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedfa.errors import require
from fedfa.experiments.points import Point, in_order, points
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results, Stage
from fedfa_reproduction.matching import Pair, PlannedRun
from fedfa_reproduction.study import Study

TO_TARGET = "-to-target"
"""The suffix of the names of runs that end at the target."""
Priority = tuple[int, int]


def priority(stage: Stage, leading: bool, nth_seed: int) -> Priority:
    """Lower is earlier."""
    if nth_seed and leading and stage is Stage.MILD_SPLIT:
        return Stage.SECOND_SEEDS, nth_seed
    if stage is Stage.HARD_SPLIT and not leading:
        stage = Stage.TO_THE_END
    return stage + nth_seed * len(Stage), 0 if leading else 1


def plan(study: Study, comparisons: Iterable[Comparison]) -> list[PlannedRun]:
    """Each run once, in the order in which they are made.

    An existing run that continued beyond the target also serves requests for the run to the target.
    """
    found: dict[str, PlannedRun] = {}
    for comparison in comparisons:
        pairs = pairs_of(study, comparison)
        further = _further(study, pairs)
        for planned, whole in pairs:
            if planned.seed not in study.seeds and planned.name not in further:
                continue
            one = whole if whole in study.answers else planned
            known = found.setdefault(one.name, one)
            found[one.name] = min(known, one, key=lambda run: run.priority)
    first = {point.folder: number for number, point in enumerate(in_order([one.point for one in found.values()]))}
    return sorted(found.values(), key=lambda run: (run.priority, first[run.point.folder]))


def pairs_of(study: Study, comparison: Comparison) -> list[Pair]:
    """The runs of a comparison: the strategies in turn, each with every seed."""
    if comparison not in study.planned:
        study.planned[comparison] = _pairs_of(study, comparison)
    return study.planned[comparison]


def _pairs_of(study: Study, comparison: Comparison) -> list[Pair]:
    chosen = {c.spec: c for c in sorted(comparison.contenders, key=lambda contender: contender.turn)}
    seeds = study.all_seeds()
    made = points(comparison.experiment, list(chosen), seeds, study.records.work / comparison.name)
    pairs = []
    for point in made:
        rank = priority(comparison.stage, chosen[point.label].leading, seeds.index(point.experiment.seed))
        whole = _limited(comparison, point)
        pairs.append((
            _planned(comparison, _to_target(comparison, whole) if study.ends_at_target(comparison) else whole, rank),
            _planned(comparison, whole, rank),
        ))  # fmt: skip
    return pairs


def _planned(comparison: Comparison, point: Point, rank: Priority) -> PlannedRun:
    return PlannedRun(f"{comparison.name}/{point.folder.name}", point, rank, comparison.retired)


def _limited(comparison: Comparison, point: Point) -> Point:
    """With the largest number of updates for a strategy of its kind."""
    if not comparison.most_updates:
        return point
    updates = comparison.most_updates.get(point.experiment.make_strategy().synchronous)
    stop = replace(point.experiment.stop, updates=updates)
    return replace(point, experiment=replace(point.experiment, stop=stop))


def _to_target(comparison: Comparison, point: Point) -> Point:
    stop = replace(point.experiment.stop, accuracy=comparison.target)
    folder = point.folder.with_name(f"{point.folder.name}{TO_TARGET}")
    return replace(point, experiment=replace(point.experiment, stop=stop), folder=folder)


def _further(study: Study, pairs: Iterable[Pair]) -> set[str]:
    """Runs of other seeds, if every strategy with any run has one: otherwise different seeds would be compared."""
    if study.all_seeds() == study.seeds:
        return set()
    there: dict[str, dict[int, str]] = {}
    for planned, whole in pairs:
        if any(map(study.answers.fairly, (whole, planned))):
            there.setdefault(planned.point.label, {})[planned.seed] = planned.name
    return {
        name
        for found in there.values()
        for seed, name in found.items()
        if all(seed in others for others in there.values())
    }


# Runs for comparisons -------------------------------------------------------------------------------------------------


def with_titles(study: Study, comparison: Comparison, runs: Mapping[str, Run]) -> list[Run]:
    """The runs of a comparison, by name, labelled with its contenders' titles."""
    titles = {contender.spec: contender.title for contender in comparison.contenders}
    shown = [
        run.labelled(titles[planned.point.label])
        for planned, whole in pairs_of(study, comparison)
        for run in [runs.get(whole.name) or runs.get(planned.name)]
        if run is not None
    ]
    models = sorted({run.manifest["task"] for run in shown})
    where = study.folder / comparison.name
    require(len(models) <= 1, f"{where}: holds runs of {' and '.join(models)}; keep one of them")
    return shown


def with_begun(study: Study, results: Results) -> Results:
    """The results; for contenders without a run, their shorter or interrupted runs."""
    return [(comparison, [*runs, *_begun(study, comparison, runs)]) for comparison, runs in results]


def _begun(study: Study, comparison: Comparison, runs: Sequence[Run]) -> list[Run]:
    there = {run.label for run in runs}
    lacking = {c.spec: c.title for c in comparison.contenders if c.title not in there}
    return [
        run.labelled(lacking[planned.point.label])
        for planned, _ in pairs_of(study, comparison)
        if planned.point.label in lacking and (run := study.answers.begun(planned)) is not None
    ]
