"""From a recipe's name to its page: choose the workloads that are at hand, make the runs, show them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from fedfa.data import locate
from fedfa.errors import ConfigError, require
from fedfa.models.bert import find_weights, needed
from fedfa.recipes import BY_NAME, RECIPES
from fedfa.recipes.lab import Contest, Lab, Recipe, Section, no_progress
from fedfa.recipes.page import write_page
from fedfa.recipes.workloads import EMBEDDED, Scale, Workload, workload
from fedfa.settings import suggest

EVERYTHING = "all"


@dataclass(frozen=True)
class Order:
    """Recipes, each with the lab that it is carried out in."""

    name: str
    folder: Path
    recipes: Sequence[tuple[Recipe, Lab]]
    remarks: Sequence[str]
    """What a user should know before it starts."""


def choose(
    name: str,
    *,
    scale: str,
    tasks: Sequence[str] | None,
    seeds: Sequence[int],
    folder: Path,
    overrides: Sequence[str] = (),
) -> Order:
    """Check everything before anything runs. Without ``tasks``: the paper's, as far as their data is at hand."""
    known = [*BY_NAME, EVERYTHING]
    require(name in known, f"{name}: {suggest(name, known, 'must be one of')}")
    require(scale in get_args(Scale), f"--scale {scale}: must be one of {', '.join(get_args(Scale))}")
    wanted = [BY_NAME[name]] if name != EVERYTHING else list(RECIPES)
    lab = Lab(scale, (), tuple(seeds), folder, tuple(overrides))  # pyright: ignore[reportArgumentType]
    for one in [workload(task.strip()) for task in tasks or ()]:
        require(not (reason := missing(one, lab)), f"--task {one.name}: {reason}")
    remarks: dict[str, None] = {}
    chosen: list[tuple[Recipe, Lab]] = []
    for recipe in wanted:
        if recipe.tasks == (EMBEDDED.name,):  # nothing of it depends on the data
            picked = [EMBEDDED]
        elif tasks is not None:
            picked = [workload(task.strip()) for task in tasks]
        else:
            picked = []
            for task in recipe.tasks:
                if reason := missing(workload(task), lab):
                    remarks[f"Left out {task}: {reason}"] = None
                else:
                    picked.append(workload(task))
            if not picked:
                remarks[f"{recipe.name}: shown on the embedded digits instead, which the paper does not have."] = None
                picked = [EMBEDDED]
        own = replace(lab, workloads=tuple({one.name: one for one in picked}.values()))
        recipe.contests(own)  # so that a bad setting is told before anything runs
        chosen.append((recipe, own))
    return Order(name, folder, chosen, list(remarks))


def make(
    order: Order,
    *,
    command: str = "",
    jobs: int | None = None,
    progress: Callable[[int], AbstractContextManager[Callable[[str], None]]] = no_progress,
) -> tuple[Path, list[Section]]:
    """Make the runs that are missing, and the page; returns it with what it shows."""
    needed: list[tuple[Recipe, Lab, list[Contest]]] = [(r, lab, list(r.contests(lab))) for r, lab in order.recipes]
    lab = order.recipes[0][1]
    results = lab.carry_out(
        [contest for _, _, contests in needed for contest in contests], command=command, jobs=jobs, progress=progress
    )
    left = list(results)
    sections = []
    for recipe, lab, contests in needed:
        own, left = left[: len(contests)], left[len(contests) :]
        sections.append(recipe.show(lab, own))
    return write_page(lab, sections, results, order.name, command), sections


def missing(one: Workload, lab: Lab) -> str:
    """Why a workload cannot be carried out in this lab; empty if it can."""
    if one is EMBEDDED:
        return ""
    try:
        locate(one.name, lab.data)
        if wanted := lab.weights(one):
            find_weights(lab.given("model.weights") or wanted, Path(lab.data).expanduser())
            needed("transformers")
    except ConfigError as error:
        return str(error)
    return ""
