"""Which of the numbers in the paper's tables stand beside a run of ours."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfa.report.grid import Grid
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results, Section
from fedfa_reproduction.comparisons import basic, concurrencies, everyone, unequal_work
from fedfa_reproduction.descriptions import scale_note
from fedfa_reproduction.plan import with_begun
from fedfa_reproduction.published import paper
from fedfa_reproduction.study import Study
from fedfa_reproduction.tables import THE_PAPERS_SPLIT
from fedfa_reproduction.workloads import BY_NAME, THE_PAPERS, Split, Workload

STRATEGIES = {
    "fedavg": "FedAvg",
    "fedasync": "FedAsync",
    "fedbuff": "FedBuff",
    "port-urgent": "Port-Urgent",
    "port-non-urgent": "Port-Non-Urgent",
    "fedfa-param": "FedFa-Param",
    "fedfa-delta": "FedFa-Delta",
}
EXTENSIONS = {
    "fednova": "FedNova",
    "fedfa-nova": "FedNova with FedFa",
    "fedprox": "FedProx",
    "fedfa-prox": "FedProx with FedFa",
}
PART, NONE, NO_NUMBER = "part", "–", ""


@dataclass(frozen=True)
class Column:
    """A column of the paper's tables, by strategy what is there of ours, and how many numbers each cell stands for."""

    title: str
    numbers: int
    cells: Mapping[str, str]


def comparisons(study: Study) -> list[Comparison]:
    return [comparison for group in _groups(study) for comparison in group]


def _groups(study: Study) -> tuple[list[Comparison], ...]:
    """Those that answer Tables 1 and 2, 3, 4 and 5, on the workloads that the paper has there."""
    every, images = _only(study, *THE_PAPERS), _only(study, "cifar10")
    return everyone(every), basic(every), concurrencies(images), unequal_work(images)


def _only(study: Study, *names: str) -> Study:
    return study.of([workload for workload in study.workloads if workload.name in names])


def coverage(study: Study, results: Results) -> Section:
    study = _only(study, *THE_PAPERS)
    columns, of_extensions = _columns(study, results)
    count: Counter[str] = Counter()
    for column in (*columns, of_extensions):
        for cell in column.cells.values():
            count[cell if cell in (PART, NONE) else "run"] += column.numbers
    text = [
        f"The paper's Tables 1 to 5 hold {count.total()} numbers. Beside {count['run']} of them stands a run of ours "
        f"that went to its end, beside {count[PART]} only a shorter or an interrupted one, beside {count[NONE]} none.",
        "A cell: the seeds of that form of the strategy that has most of them; a form that failed counts, too. “part”: "
        "shorter or interrupted runs only; “–”: none; empty: the paper has no number. Tables 1 and 2 tell the time and "
        "the rounds of the same runs, so a cell there stands for two numbers; so does one of Table 5.",
        scale_note(study, results),
    ]
    grids = [_grid("Tables 1 to 4", STRATEGIES, columns), _grid("Table 5", EXTENSIONS, [of_extensions])]
    values = {"numbers": count.total(), "run": count["run"], "part": count[PART], "none": count[NONE]}
    return Section("coverage", "Which numbers of the paper stand beside a run", text, grids, values=values)


def _grid(title: str, strategies: Mapping[str, str], columns: Sequence[Column]) -> Grid:
    rows = [(column.title, *(column.cells.get(row, NO_NUMBER) for row in strategies)) for column in columns]
    return Grid(title, ("Column", *strategies.values()), rows)


def _columns(study: Study, results: Results) -> tuple[list[Column], Column]:
    """Of Tables 1 to 4, and the only one of Table 5."""
    to_target, whole, concurrency, unequal = _by_group(study, results)
    tables = paper()
    splits = {split.name: _short(BY_NAME[task], split) for task in THE_PAPERS for split in BY_NAME[task].splits}
    columns = []
    for title, table, numbers, there in (("1, 2", "table1", 2, to_target), ("3", "table3", 1, whole)):
        for key, theirs in tables[table].items():
            rows = [row for row in theirs if row != "target"]
            columns.append(Column(f"{title}: {splits[key]}", numbers, _cells(rows, there.get(key))))
    for key, theirs in tables["table4"].items():
        columns.append(Column(f"4: M_c = {key}", 1, _cells(theirs, concurrency.get(key))))
    return columns, Column(
        "5", len(tables["table5"]), _cells(tables["table5"]["seconds"], unequal.get(THE_PAPERS_SPLIT))
    )


def _short(workload: Workload, split: Split) -> str:
    """Without the model."""
    data, alpha = workload.title.partition(",")[0], split.title.rpartition(", ")[2]
    return f"{data}, {alpha}" if alpha else data


Found = tuple[Comparison, Sequence[Run], Sequence[Run]]
"""A comparison with its finished runs, and with the shorter and the interrupted ones, too."""


def _by_group(study: Study, results: Results) -> list[dict[str, Found]]:
    """By the keys of the paper's columns: the split, or the concurrency."""
    shown = zip(results, with_begun(study, results), strict=True)
    found: list[Found] = [(comparison, runs, known) for (comparison, runs), (_, known) in shown]
    groups = []
    for size in map(len, _groups(study)):
        groups.append(found[:size])
        found = found[size:]
    to_target, whole, concurrency, unequal = groups
    return [
        *({one[0].name: one for one in some} for some in (to_target, whole)),
        {
            str(one[0].experiment.strategy["concurrency"]): one
            for one in concurrency
            if one[0].experiment.name == THE_PAPERS_SPLIT
        },
        {one[0].experiment.name: one for one in unequal},
    ]


def _cells(rows: Sequence[str] | Mapping[str, object], found: Found | None) -> dict[str, str]:
    return {row: _cell(row, *found) if found else NONE for row in rows}


def _cell(row: str, comparison: Comparison, runs: Sequence[Run], known: Sequence[Run]) -> str:
    titles = {contender.title for contender in comparison.contenders if contender.row == row}
    seeds = Counter(run.label for run in runs if run.label in titles)
    if seeds:
        return str(max(seeds.values()))
    return PART if any(run.label in titles for run in known) else NONE
