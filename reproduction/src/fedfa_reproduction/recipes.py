"""Every table and figure by its name."""

from rich.table import Table

from fedfa_reproduction import comparisons, coverage, figures, phones, questions, reruns, same_time, tables
from fedfa_reproduction.base import Recipe
from fedfa_reproduction.workloads import THE_PAPERS

RECIPES = (
    Recipe("figure1", "who waits, and what it costs", ("digits",), comparisons.same_work, figures.figure1),
    Recipe("figure2", "which client holds which labels", ("cifar10",), comparisons.nothing, figures.figure2),
    Recipe("table1", "time to the target accuracy", THE_PAPERS, comparisons.everyone, tables.table1),
    Recipe("figure3", "accuracy over time", ("cifar10",), comparisons.everyone, figures.figure3),
    Recipe("table2", "rounds to the target accuracy", THE_PAPERS, comparisons.everyone, tables.table2),
    Recipe("figure4", "accuracy over rounds", ("cifar10",), comparisons.everyone, figures.figure4),
    Recipe(
        "same-time", "the hard split in the same time", ("cifar10", "sst2"), comparisons.same_time, same_time.same_time
    ),
    Recipe("table3", "best accuracy", THE_PAPERS, comparisons.basic, tables.table3),
    Recipe("figure5", "window size K", ("cifar10",), comparisons.windows, figures.figure5),
    Recipe("table4", "concurrency M_c", ("cifar10",), comparisons.concurrencies, tables.table4),
    Recipe("table5", "FedNova, FedProx with FedFa", ("cifar10",), comparisons.unequal_work, tables.table5),
    Recipe("figure6", "FedNova, FedProx with FedFa", ("cifar10",), comparisons.unequal_work, figures.figure6),
    Recipe("delta", "the steps of FedFa-Delta and FedFa-Agree", ("cifar10",), questions.deltas, questions.delta),
    Recipe("window-cost", "what a window costs", ("cifar10",), questions.windows_and_steps, questions.window_cost),
    Recipe("refill", "refill, window and step", ("cifar10",), questions.refills, questions.refill),
    Recipe("mixing", "how FedAsync mixes", ("cifar10",), questions.mixings, questions.mixing),
    Recipe("weather", "real phones beside the paper's long tail", ("digits",), comparisons.nothing, phones.weathers),
    Recipe("coverage", "which numbers of the paper have a run", THE_PAPERS, coverage.comparisons, coverage.coverage),
    Recipe("reruns", "runs that were made twice", ("cifar10",), comparisons.nothing, reruns.reruns),
)

BY_NAME = {recipe.name: recipe for recipe in RECIPES}


def list_recipes() -> Table:
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
