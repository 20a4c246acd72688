"""The paper's tables and figures as recipes: ``fedfa paper NAME`` carries one out, at the paper's scale or a small one.

workloads    the tasks at full and at smoke scale       contenders   the strategies compared
contests     the runs that tables and figures need      agenda       which of them are made first
lab          making the runs, and finding them          paper.toml   the numbers the paper prints
tables, figures, levels, paces   what is shown of them  page         the page
questions    what the paper leaves open: runs and tables
"""

from typing import TYPE_CHECKING

from fedfa.recipes import contests, figures, levels, questions, tables
from fedfa.recipes.lab import Lab, Recipe
from fedfa.recipes.workloads import THE_PAPERS

if TYPE_CHECKING:
    from rich.table import Table

RECIPES = (
    Recipe("figure1", "who waits, and what it costs", ("digits",), contests.same_work, figures.figure1),
    Recipe("figure2", "which client holds which labels", ("cifar10",), contests.nothing, figures.figure2),
    Recipe("table1", "time to the target accuracy", THE_PAPERS, contests.everyone_to_target, tables.table1),
    Recipe("figure3", "accuracy over time", ("cifar10",), contests.everyone_to_target, figures.figure3),
    Recipe("table2", "rounds to the target accuracy", THE_PAPERS, contests.everyone_to_target, tables.table2),
    Recipe("figure4", "accuracy over rounds", ("cifar10",), contests.everyone_to_target, figures.figure4),
    Recipe("same-time", "the hard split in the same time", ("cifar10", "sst2"), contests.same_time, levels.same_time),
    Recipe("table3", "best accuracy", THE_PAPERS, contests.basic, tables.table3),
    Recipe("figure5", "window size K", ("cifar10",), contests.windows, figures.figure5),
    Recipe("table4", "concurrency M_c", ("cifar10",), contests.concurrencies, tables.table4),
    Recipe("table5", "FedNova, FedProx with FedFa", ("cifar10",), contests.unequal_work, tables.table5),
    Recipe("figure6", "FedNova, FedProx with FedFa", ("cifar10",), contests.unequal_work, figures.figure6),
    Recipe("delta", "the readings of FedFa-Delta", ("cifar10",), questions.deltas, questions.delta),
    Recipe("pace", "what a window costs", ("cifar10",), questions.windows_at_pace, questions.pace),
    Recipe("refill", "refill, window and step", ("cifar10",), questions.refills, questions.refill),
    Recipe("mixing", "how FedAsync mixes", ("cifar10",), questions.mixings, questions.mixing),
    Recipe("weather", "real phones beside the paper's long tail", ("digits",), contests.nothing, figures.weathers),
)

BY_NAME = {recipe.name: recipe for recipe in RECIPES}

__all__ = ["BY_NAME", "RECIPES", "Lab", "Recipe", "list_recipes"]


def list_recipes() -> "Table":
    from rich.table import Table

    table = Table(
        title="Tables and figures of the FedFa paper",
        caption="Make one: fedfa paper NAME [--task cifar10] [--scale full] [--data DIR]; everything: fedfa paper all",
        caption_justify="left",
    )
    for header in ("name", "what it shows", "workloads"):
        table.add_column(header)
    for recipe in RECIPES:
        table.add_row(recipe.name, recipe.title, ", ".join(recipe.tasks))
    return table
