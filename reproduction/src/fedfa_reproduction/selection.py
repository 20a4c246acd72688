"""From a name to the recipes, each with the available workloads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fedfa.errors import ConfigError, require
from fedfa.learning.data.registry import DATASETS
from fedfa.learning.models.bert import find_weights, needed
from fedfa.settings import suggest
from fedfa_reproduction.base import Comparison, Recipe
from fedfa_reproduction.plan import plan
from fedfa_reproduction.recipes import BY_NAME, RECIPES
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import ALL, EMBEDDED, Scale, Workload, workload

EVERYTHING = "all"


@dataclass(frozen=True)
class Chosen:
    """A recipe on its workloads, with the comparisons that it needs there."""

    recipe: Recipe
    study: Study
    comparisons: Sequence[Comparison]


@dataclass(frozen=True)
class Selection:
    """The checked request."""

    name: str
    study: Study
    chosen: Sequence[Chosen]
    remarks: Sequence[str] = ()
    """What a user should know before it starts."""

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for one in self.chosen for comparison in one.comparisons]


def choose(
    name: str,
    *,
    scale: str,
    tasks: Sequence[str] | None,
    seeds: Sequence[int],
    folder: Path,
    overrides: Sequence[str] = (),
    only_show: bool = False,
) -> Selection:
    """Check everything before anything runs. Without ``tasks``: the paper's workloads with available data.

    ``only_show``: needs no data and makes no runs; shows the paper's workloads, and others that have runs of a recipe.
    """
    known = [*BY_NAME, EVERYTHING]
    require(name in known, f"{name}: {suggest(name, known, 'must be one of')}")
    require(scale in get_args(Scale), f"--scale {scale}: must be one of {', '.join(get_args(Scale))}")
    study = Study(scale, (), tuple(seeds), folder, tuple(overrides), only_show)  # pyright: ignore[reportArgumentType]
    named = None if tasks is None else [workload(task.strip()) for task in tasks]
    for one in named or ():
        reason = "" if only_show else missing(one, study)
        require(not reason, f"--task {one.name}: {reason}")
    remarks: dict[str, None] = {}
    chosen = []
    for recipe in [BY_NAME[name]] if name != EVERYTHING else RECIPES:
        own = study.of(_workloads(recipe, study, named, remarks))
        chosen.append(Chosen(recipe, own, list(recipe.comparisons(own))))
    return Selection(name, study, chosen, list(remarks))


def _workloads(
    recipe: Recipe, study: Study, named: Sequence[Workload] | None, remarks: dict[str, None]
) -> Sequence[Workload]:
    """The workloads for a recipe; omitted ones are added to the remarks."""
    if recipe.tasks == (EMBEDDED.name,):  # the recipe does not depend on the data
        return [EMBEDDED]
    if named is not None:
        return named
    papers = [workload(task) for task in recipe.tasks]
    if study.only_show:
        return papers + [one for one in ALL if one not in papers and has_runs(recipe, one, study)]
    reasons = {one.name: missing(one, study) for one in papers}
    remarks |= {f"Left out {task}: {reason}": None for task, reason in reasons.items() if reason}
    there = [one for one in papers if not reasons[one.name]]
    if not there:
        remarks[f"{recipe.name}: shown on the embedded digits instead, which the paper does not have."] = None
    return there or [EMBEDDED]


def has_runs(recipe: Recipe, one: Workload, study: Study) -> bool:
    """Whether there are runs of a recipe on this workload; of a recipe that needs none, any runs on it."""
    names = tuple(split.name for split in one.splits)
    if not any(record.comparison.startswith(names) for record in study.records.by_name.values()):
        return False
    own = study.of([one])
    comparisons = recipe.comparisons(own)
    return not comparisons or any(planned in study.answers for planned in plan(own, comparisons))


def missing(one: Workload, study: Study) -> str:
    """Why a workload cannot be run; empty if it can."""
    if one is EMBEDDED:
        return ""
    try:
        name = one.dataset or one.name
        DATASETS[name].locate(name, study.data)
        if wanted := study.weights(one):
            find_weights(study.given("model.weights") or wanted, Path(study.data).expanduser())
            needed("transformers")
    except ConfigError as error:
        return str(error)
    return ""
