"""From a recipe's name to its page: choose the workloads that are at hand, make the runs, show them."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from fedfa.data import locate
from fedfa.errors import ConfigError, require
from fedfa.models.bert import find_weights, needed
from fedfa.recipes import BY_NAME, RECIPES
from fedfa.recipes.lab import Contest, Lab, Recipe, Results, Section, no_progress
from fedfa.recipes.markdown import write_markdown
from fedfa.recipes.page import write_page
from fedfa.recipes.workloads import ALL, EMBEDDED, Scale, Workload, workload
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
    only_show: bool = False,
) -> Order:
    """Check everything before anything runs. Without ``tasks``: the paper's, as far as their data is at hand.

    ``only_show``: without runs and without data; what the paper has in a recipe, and other workloads with runs of it.
    """
    known = [*BY_NAME, EVERYTHING]
    require(name in known, f"{name}: {suggest(name, known, 'must be one of')}")
    require(scale in get_args(Scale), f"--scale {scale}: must be one of {', '.join(get_args(Scale))}")
    wanted = [BY_NAME[name]] if name != EVERYTHING else list(RECIPES)
    lab = Lab(scale, (), tuple(seeds), folder, tuple(overrides), only_show)  # pyright: ignore[reportArgumentType]
    for one in [workload(task.strip()) for task in tasks or ()]:
        reason = "" if only_show else missing(one, lab)
        require(not reason, f"--task {one.name}: {reason}")
    remarks: dict[str, None] = {}
    chosen: list[tuple[Recipe, Lab]] = []
    for recipe in wanted:
        if recipe.tasks == (EMBEDDED.name,):  # nothing of it depends on the data
            picked = [EMBEDDED]
        elif tasks is not None:
            picked = [workload(task.strip()) for task in tasks]
        elif only_show:
            others = [one for one in ALL if one.name not in recipe.tasks and has_runs(recipe, one, lab)]
            picked = [workload(task) for task in recipe.tasks] + others
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
    until: float = math.inf,
    markdown: Path | None = None,
) -> tuple[Path, list[Section]]:
    """Make the runs that are missing, as far as the time allows, and the page; returns it with what it shows.

    ``markdown``: a file that the same tables and figures are written into.
    """
    lab = order.recipes[0][1]
    sections, results = carry_out(order, command=command, jobs=jobs, progress=progress, until=until)
    page = write_page(lab, sections, results, order.name, command)
    if markdown is not None:
        write_markdown(markdown, lab, sections, results, command)
    return page, sections


def carry_out(order: Order, **how: Any) -> tuple[list[Section], Results]:
    """What the recipes show, and the runs behind it; ``how`` goes to the lab."""
    needed: list[tuple[Recipe, Lab, list[Contest]]] = [(r, lab, list(r.contests(lab))) for r, lab in order.recipes]
    everything = [contest for _, _, contests in needed for contest in contests]
    results = order.recipes[0][1].carry_out(everything, **how)
    left = list(results)
    sections = []
    for recipe, lab, contests in needed:
        own, left = left[: len(contests)], left[len(contests) :]
        seeds = sorted({run.seed for _, runs in own for run in runs})
        sections.append(replace(recipe.show(lab, own), seeds=seeds))
    return sections, results


def standing(order: Order) -> tuple[int, int]:
    """How many of the runs are there, longer ones for shorter ones too, and how many it takes in all."""
    lab = order.recipes[0][1]
    plan = lab.plan([contest for recipe, own in order.recipes for contest in recipe.contests(own)])
    shelf = lab.shelf
    return sum(point in shelf for point in plan), len(plan)


def has_runs(recipe: Recipe, one: Workload, lab: Lab) -> bool:
    """Whether there are runs of a recipe on this workload; of a recipe that needs none, any runs on it."""
    if not any(next(lab.folder.glob(f"{split.name}*/*/manifest.json"), None) for split in one.splits):
        return False
    shelf, contests = lab.shelf, recipe.contests(replace(lab, workloads=(one,)))
    return not contests or any(point in shelf for point in lab.plan(contests))


def missing(one: Workload, lab: Lab) -> str:
    """Why a workload cannot be carried out in this lab; empty if it can."""
    if one is EMBEDDED:
        return ""
    try:
        locate(one.dataset or one.name, lab.data)
        if wanted := lab.weights(one):
            find_weights(lab.given("model.weights") or wanted, Path(lab.data).expanduser())
            needed("transformers")
    except ConfigError as error:
        return str(error)
    return ""
