"""What pages say of the records is what the records say: every number of docs/reproduction.md, and some of others."""

import re
from statistics import geometric_mean

from fedfa.report.shapes import number
from fedfa_reproduction.label_counts import kept_counts
from fedfa_reproduction.published import paper
from fedfa_reproduction.reruns import levels
from reproduction_helpers import (
    AGREE,
    CNN,
    CNN_HARD,
    HARD,
    MILD,
    PAGE,
    PARAM,
    ROOT,
    SENT140,
    Shown,
    flowing,
    least_and_most,
    points,
    seeds,
    steadily,
    table_after,
    times,
)  # fmt: skip

NO_RESULTS = (
    r"CIFAR-10", r"ResNet-18", r"Sent140", r"SST-2", r"MiniLM-L6", r"IJCAI 2024", r"proceedings/2024/584", r"int8",
    r"1/M_c", r"as printed\" \(1\)", r"alpha = [\d.]+", r"(K|M_c) = [\d, ]+", r"B = 10", r"step 1\.5", r"[Ss]eed 0",
    r"Tables? \d(, \d| to \d)?", r"Figure \d", r"--seeds 0,1", r"--minutes 9", r"figure\d-cifar10", r"cifar10-",
    r"First at 70 %", r"Steadily at 68 %|at least 68 %", r"1,000 s\*", r"last 15 %", r"with 2 local epochs",
    r"146 users", r"in bf16",
)  # fmt: skip
"""Names, settings and definitions."""


def coverage(recorded: Shown) -> list[str]:
    section = recorded.section("coverage")
    return [section.text[0], *(line(row) for grid in section.grids for row in (grid.headers, *grid.rows))]


def line(cells: tuple[str, ...]) -> str:
    return f"|{'|'.join(cells)}|"


def stands_in(recorded: Shown) -> list[str]:
    comparison, runs = next(found for found in recorded.results if found[0].name == SENT140)
    counts = kept_counts(recorded.selection.study, comparison.experiment)
    assert counts is not None
    examples, clients = counts["examples"].sum(), runs[0].manifest["num_clients"]
    return [f"{examples:,} training examples of {clients} clients"]


def noise(recorded: Shown) -> list[str]:
    found = recorded.section("reruns").values
    different = {pair["runs"][1]: pair for pair in found["different"]}
    moved = {
        alpha: max(pair["moved"] for name, pair in different.items() if alpha_of(recorded, name) == alpha)
        for alpha in (0.1, 5.0)
    }
    apart = max(abs(first - second) for first, second in (pair["levels"] for pair in different.values()))
    tweets = [recorded.runs(SENT140, title)[0] for title in (AGREE, PARAM)]
    assert [run.manifest.get("device", "cpu") for run in tweets] == ["cpu", "cuda"]
    first, second = (run.time_to(0.71) or 0.0 for run in tweets)
    return [
        f"{found['pairs']} records repeat a run",
        f"{found['pairs'] - len(different)} of them are equal in every evaluation",
        *(
            f"{row} | {rerun(recorded, different[name]['runs'], goal)} |"
            for row, name, goal in (
                ("FedFa-Agree, ResNet-18, alpha = 0.1", f"{HARD}/fedfa-agree_window=5-seed0", 0.45),
                ("FedAvg, ResNet-18, alpha = 0.1", f"{HARD}/fedavg-seed0", 0.45),
                ("FedFa-Agree with step 1.5, small CNN, alpha = 5",
                 f"{CNN}/fedfa-agree_window=5_server_lr=1.5-seed1-to-target", 0.5),
            )
        ),
        f"first at 71 % after {number(first)} s on a CPU and {number(second)} s on a GPU",
        f"up to {moved[0.1]:.0f} s with alpha = 0.1, {moved[5.0]:.0f} s with alpha = 5, {first - second:.0f} s on "
        f"Sent140, and {100 * apart:.1f} points",
    ]  # fmt: skip


def rerun(recorded: Shown, names: list[str], goal: float) -> str:
    one, other = map(recorded.record, names)
    least = min(len(one.updates), len(other.updates))
    arrivals = [run.updates.select("seconds", "client", "staleness").head(least) for run in (one, other)]
    assert arrivals[0].equals(arrivals[1])
    reached = " and ".join(number(steadily(goal)(run)) for run in (one, other))
    ends = " and ".join(map(points, levels(one, other)))
    return f"{100 * goal:.0f} %: {reached} s | {ends} %"


def alpha_of(recorded: Shown, name: str) -> float:
    return recorded.record(name).config["data"]["alpha"]


def of_fedfa_agree(recorded: Shown) -> list[str]:
    r = recorded
    mild, hard = seeds(r, (MILD, AGREE, PARAM)), seeds(r, (HARD, AGREE, PARAM))
    for name in (MILD, HARD):
        for run in r.runs(name, AGREE).values():
            late = run.evaluations.filter(run.evaluations["updates"] >= 40)
            assert set(late["step"]) == {1.0}
    assert {step for run in r.runs(SENT140, AGREE).values() for step in run.evaluations["step"].drop_nans()} == {1.0}
    return [
        f"steadily at 68 % after {r.steady(MILD, AGREE, 0.68)} and {r.steady(MILD, PARAM, 0.68)} s with alpha = 5 "
        f"({mild})",
        f"at {r.level(HARD, AGREE, 1000)} and {r.level(HARD, PARAM, 1000)} % after 1,000 s with alpha = 0.1 ({hard})",
        "From update 40 on, all its recorded steps are 1",
        "as long as the step is 1, and all recorded steps are 1",
    ]


def of_port(recorded: Shown) -> list[str]:
    """Runs of the two forms under the same name are the same, row by row."""
    names = list(recorded.selection.study.records.by_name)
    both = [
        (name, other) for name in names for other in [name.replace("port-non-urgent", "port-urgent")]
        if other != name and other in names
    ]  # fmt: skip
    late = [run.updates["staleness"].max() for name in names if "/port-" in name for run in [recorded.record(name)]]
    for pair in both:
        one, other = map(recorded.record, pair)
        assert one.updates.equals(other.updates)
        assert one.evaluations.equals(other.evaluations)
    return [
        f"The largest staleness in any of their runs is {max(late)}",  # pyright: ignore[reportArgumentType]
        f"All {len(both)} pairs of runs are identical",
    ]


def test_every_number_of_the_page_is_what_the_records_say(recorded: Shown) -> None:
    """What is left when the checked phrases and the verdicts are taken out has no number."""
    page = PAGE.read_text()
    told = [coverage, stands_in, noise, of_fedfa_agree, of_port]
    phrases = [phrase for part in told for phrase in part(recorded)]
    phrases += [f"| {' | '.join(row)} |" for row in table_after(page, "## Verdicts")]
    left = flowing(page)
    assert [phrase for phrase in phrases if phrase not in left] == []
    for phrase in sorted(phrases, key=len, reverse=True):
        left = left.replace(phrase, "")
    for name in NO_RESULTS:
        left = re.sub(name, "", left)
    assert re.findall(r".{0,30}\d.{0,30}", left) == []


# docs/fedfa-agree.md -------------------------------------------------------------------------------------------------


def test_the_evidence_for_fedfa_agree_is_what_the_records_say(recorded: Shown) -> None:
    r, text = recorded, (ROOT / "docs" / "fedfa-agree.md").read_text()
    speeds = [
        (task, goal, r.ratios(name, PARAM, AGREE, steadily(goal)))
        for task, name, goals in (
            ("CIFAR-10, small CNN, alpha = 5", CNN, (0.5, 0.53)),
            ("CIFAR-10, small CNN, alpha = 0.1", "cifar10-cnn-noniid", (0.3, 0.38)),
            ("CIFAR-10, ResNet-18, alpha = 5", MILD, (0.6, 0.68)),
        )
        for goal in goals
    ]
    rows = [
        [task, f"{100 * goal:.0f} %", str(len(found)),
         f"{geometric_mean(found):.2f} (least {found[0]:.2f}, most {found[-1]:.2f})"]
        for task, goal, found in speeds
    ]  # fmt: skip
    assert [row[:4] for row in table_after(text, "## Evidence")] == rows
    sst2 = "sst2-noniid-same-time"
    steps = [step for run in r.runs(sst2, AGREE).values() for step in run.evaluations["step"].drop_nans()]
    five, ten = (over_param(r, f"small CNN, IID, alpha = 5: K = {k}") for k in (5, 10))
    phrases = (
        f"SST-2: {r.level(sst2, AGREE, 300)} and {r.level(sst2, PARAM, 300)} % after 300 s "
        f"({seeds(r, (sst2, AGREE, PARAM))} seed); {sum(step == 1 for step in steps)} of {len(steps)} recorded steps "
        "are 1",
        f"first at 50 % {five} times as fast as FedFa-Param with K = 5, and {ten} times with K = 10 (2 seeds)",
    )
    assert [phrase for phrase in phrases if phrase not in flowing(text)] == []


def over_param(recorded: Shown, title: str) -> str:
    """How many times as fast as FedFa-Param FedFa-Agree is, as the recipe window-cost tells it."""
    grid = next(grid for grid in recorded.section("window-cost").grids if grid.title.endswith(title))
    found = next(row for row in grid.rows if row[0] == AGREE)
    assert found[-1] == "2 of 2"
    return found[-2].partition(" ")[0]


def test_the_readme_says_what_the_records_say(recorded: Shown) -> None:
    r, found = recorded, recorded.section("coverage").values
    speed = r.ratios(MILD, "FedAvg", PARAM, steadily(0.68))
    hard = [r.level(HARD, title, 1000) for title in ("FedAvg", PARAM)]
    few = [r.level(CNN_HARD, title, 1000) for title in ("K = 10", "FedAvg")]
    phrases = (
        f"{found['run']} of the paper's {found['numbers']} numbers",
        f"FedFa-Param is {least_and_most(speed)} times as fast as FedAvg on CIFAR-10 (alpha = 5, two seeds), "
        f"{times(paper()['table1'][MILD], 'fedavg', 'fedfa-param')} in the paper",
        f"FedFa-Param with K = 5 is behind FedAvg after 1,000 s ({hard[1]} and {hard[0]} %, one seed)",
        f"with K = 10 it ends at {few[0]} %, FedAvg at {few[1]} (five seeds)",
    )
    assert [phrase for phrase in phrases if phrase not in flowing((ROOT / "README.md").read_text())] == []
