"""The report: numbers against hand-made schedules, files on disk, and the page in a real browser."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from statistics import stdev

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import fedfa
from fedfa.errors import ConfigError
from fedfa.report.curves import accuracy_figure
from fedfa.report.figures import label_figure, staleness_figure, time_to_target_figure
from fedfa.report.interactive import as_plotly
from fedfa.report.page import verdict, write_report
from fedfa.report.provenance import shared
from fedfa.report.shapes import PALETTE, Band, Boxes, Dots, Line, Note, colours
from fedfa.report.static import draw, save
from fedfa.report.tables import as_rich, summarise
from fedfa.report.timeline import segments, timeline_figure, waiting_share
from fedfa.runs.recorder import TAKEN, Outcome, Recorder
from fedfa.runs.run import Run

TARGET = 0.7
FAST, SLOW = 1.0, 4.0
"""Seconds that client 0 and client 1 need; the only two, on two slots."""


def make_run(
    label: str,
    accuracies: Sequence[float],
    *,
    seed: int = 1,
    synchronous: bool = False,
    refused: int = 0,
    clients: pl.DataFrame | None = None,
) -> Run:
    """Two clients on two slots, evaluated every two accepted updates; the clock of seed s runs (1 + s) / 2 as fast.

    Synchronous: a round is both clients and takes as long as the slow one. Otherwise each starts again at once and a
    window of two publishes from the second arrival on. The first ``refused`` arrivals of a run are not taken.
    """
    pace, recorder = (1 + seed) / 2, Recorder()
    recorder.evaluations.append((0, 0.0, 0, 0.1, 2.3, math.nan))
    due = [[FAST, 0, 0, 0.0, 0], [SLOW, 1, 1, 0.0, 0]]  # arrival, client, dispatch, dispatched, base version
    waiting: list[list[float]] = []
    accepted = version = 0
    now = 0.0
    while accepted < 2 * len(accuracies):
        flight = min(due)
        due.remove(flight)
        now, client, dispatch, dispatched, base = flight
        taken = len(recorder.updates) >= refused
        staleness = version - base
        accepted += taken
        publishes = taken and (accepted % 2 == 0 if synchronous else accepted >= 2)
        version += publishes
        outcome = recorder.code_of(TAKEN if taken else Outcome("refused", "not finite (NaN or Inf)"))
        times = (pace * now, client, dispatch, pace * dispatched)
        recorder.updates.append((*times, base, staleness, version, outcome, 1.0, 0.5, 10, 5.0, 100, 100))
        waiting.append(flight)
        if publishes or not (synchronous and taken):
            due += [[now + (FAST, SLOW)[int(f[1])], f[1], f[2] + 2, now, version] for f in waiting]
            waiting.clear()
        if taken and accepted % 2 == 0:
            recorder.evaluations.append((accepted, pace * now, version, accuracies[accepted // 2 - 1], 1.0, math.nan))
    manifest = {
        "label": label,
        "strategy": {"name": label, "concurrency": 2},
        "task": "toy/mlp",
        "seed": seed,
        "synchronous": synchronous,
        "round_size": 2,
        "refill": "batch" if synchronous else "immediate",
        "update_weight": 0.5,
        "concurrency": 2,
        "num_clients": 2,
        "ended": "max_updates",
        "seconds": pace * now,
        "wall_seconds": 0.25,
        "version": version,
        "executor": "serial",
        "machine": {"python": "3.11"},
        "weather": {"speed": {"kind": "constant", "value": 1.0}},
        "command": "",
    }
    held = pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})
    return Run(
        recorder.update_frame(),
        recorder.evaluation_frame(),
        manifest,
        held if clients is None else clients,
        config={"seed": seed, "task": {"data": "toy", "lr": 0.1}},
    )


CLIENTS = pl.DataFrame({"client": [0, 0, 1], "label": ["9", "10", "9"], "examples": [25, 0, 100]})


@pytest.fixture(scope="module")
def comparison() -> list[Run]:
    return [
        make_run(label, (0.3, 0.5, 0.7, 0.8), seed=seed, synchronous=label == "fedavg", clients=CLIENTS)
        for seed in (1, 2)
        for label in ("fedavg", "fedfa-param")
    ]


@pytest.fixture(scope="module")
def odd() -> list[Run]:
    """All that may trip a report: a target missed, refused rows, nothing but the initial evaluation, rude names."""
    return [
        make_run("fedavg", (0.3, 0.7), seed=1, synchronous=True, refused=1),
        make_run("fedavg", (0.3, 0.4), seed=2, synchronous=True),
        make_run("only </script><b>$x_1$ & co", (), seed=1),
        make_run("fedasync", (0.2, 0.8, 0.8), seed=1, refused=2),
    ]


# Tables --------------------------------------------------------------------------------------------------------------


def test_summary_matches_the_schedule(comparison: list[Run]) -> None:
    fedavg, fedfa = summarise(comparison, TARGET)
    # The third evaluation shows the target. FedAvg: three rounds of 4 s. FedFa: the sixth of the arrivals at
    # 1, 2, 3, 4, 4, 5 s. Seed 2 is 1.5 times as slow.
    sync, windowed = (12.0, 18.0), (5.0, 7.5)
    assert (fedavg.label, fedavg.seeds, fedavg.reached) == ("fedavg", 2, 2)
    assert (fedavg.time_mean, fedavg.time_sd) == (15.0, pytest.approx(stdev(sync)))
    assert (fedfa.time_mean, fedfa.time_sd) == (6.25, pytest.approx(stdev(windowed)))
    assert (fedfa.updates_mean, fedfa.rounds_mean) == (6, 3)
    assert (fedavg.speedup, fedfa.speedup) == (1.0, pytest.approx(15 / 6.25))
    assert (fedfa.best_mean, fedfa.best_sd, fedfa.final_mean) == (pytest.approx(0.8), 0, pytest.approx(0.8))
    assert (fedavg.staleness_mean, fedavg.staleness_max) == (0.0, 0)
    # Versions 0, 1, 2, 3, 4, 5, 6, 7 after eight arrivals: the slow client's first (the fifth) missed three, the
    # fast one's next missed the slow one's publication, the others none.
    assert (fedfa.staleness_mean, fedfa.staleness_max) == (pytest.approx((3 + 1) / 8), 3)


def test_summary_of_a_target_that_some_miss(odd: list[Run]) -> None:
    rows = {row.label: row for row in summarise(odd, TARGET)}
    fedavg = rows["fedavg"]
    # Refused at 1 s, client 0 starts again and arrives at 2 s: the rounds end at 4 and 8 s all the same.
    assert (fedavg.reached, fedavg.seeds, fedavg.time_mean, fedavg.time_sd) == (1, 2, 8.0, None)
    assert rows["fedasync"].complete
    assert rows["fedasync"].speedup is None, "one seed of fedavg has no time to compare with"
    nothing = rows["only </script><b>$x_1$ & co"]
    assert (nothing.reached, nothing.time_mean, nothing.best_mean, nothing.staleness_mean) == (0, None, 0.1, None)
    json.dumps([asdict(row) for row in rows.values()], allow_nan=False)


@pytest.mark.parametrize("width", [60, 100, 120])
def test_terminal_table_says_what_was_not_reached_and_cuts_nothing(odd: list[Run], width: int) -> None:
    file = StringIO()
    Console(file=file, width=width).print(as_rich(summarise(odd, TARGET), TARGET))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for word in ("reached", "8.00", "80.0"):
        assert word in text
    if width == 120:
        assert "1 of 2 reached" in text
        assert "not reached" in text


def test_verdict(comparison: list[Run], odd: list[Run]) -> None:
    def of(runs: Sequence[Run], target: float | None) -> str:
        return verdict(summarise(runs, target), target)

    assert of(comparison, TARGET) == (
        "fedfa-param reached 70 % first, after a mean of 6.25 virtual seconds: 2.40 times as fast as fedavg."
    )
    assert of(comparison, 0.9) == (
        "No strategy reached 90 % on every seed. The best accuracy of fedavg was 80.0 %, a mean over seeds."
    )
    assert of(comparison, None).startswith("The best accuracy of fedavg was 80.0 %")
    assert of(comparison[1:2], TARGET) == "fedfa-param reached 70 %, after 5.00 virtual seconds."
    assert of(comparison[1:2], 0.9) == "90 % was not reached. The best accuracy of fedfa-param was 80.0 %."
    assert of(odd, TARGET).endswith("; fedavg reached it on only 1 of 2 seeds.")
    assert of(odd[1:], TARGET).endswith("; fedavg did not reach it.")
    later = [make_run("later", (0.5, 0.6, 0.8), seed=seed) for seed in (1, 9)]  # seeds far apart, each a little later
    sooner = [make_run("sooner", (0.5, 0.8), seed=seed) for seed in (1, 9)]
    assert "Too close" not in of([*later, *sooner], TARGET)
    mixed = [make_run("mixed", scores, seed=seed) for seed, scores in ((1, (0.8,)), (9, (0.5, 0.6, 0.6, 0.8)))]
    assert of([*mixed, *sooner], TARGET).endswith(" Too close to call over these seeds: mixed (18.5 s).")
    slow = make_run("fedprox", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), synchronous=True)
    assert of([comparison[0], slow], TARGET).endswith(f"; the next, fedprox, took {28 / 12:.2f} times as long.")


# Figures -------------------------------------------------------------------------------------------------------------


def test_accuracy_is_a_mean_of_steps_up_to_the_shortest_run(comparison: list[Run]) -> None:
    figure = accuracy_figure([run for run in comparison if run.label == "fedavg"], "seconds", TARGET)
    mean, tail = (layer for layer in figure.layers if isinstance(layer, Line))
    (band,) = (layer for layer in figure.layers if isinstance(layer, Band))
    # Seed 1 is evaluated at 0, 4, ..., 16 s, where it ends; seed 2 at 0, 6, ..., 24 s.
    assert mean.x == band.x == (0, 4, 6, 8, 12, 16)
    seeds = np.array([[10, 30, 30, 50, 70, 80], [10, 10, 30, 30, 50, 50]])
    assert mean.y == pytest.approx(seeds.mean(axis=0))
    assert (band.low, band.high) == (pytest.approx(seeds.min(axis=0)), pytest.approx(seeds.max(axis=0)))
    assert (tail.x, tail.y, tail.listed) == ((16, 18, 24), pytest.approx((50, 70, 80)), False)


@pytest.mark.parametrize(("against", "last"), [("updates", 8), ("rounds", 4)])
def test_accuracy_against_other_measures(comparison: list[Run], against: str, last: float) -> None:
    lines = [layer for layer in accuracy_figure(comparison, against).layers if isinstance(layer, Line)]
    assert [(line.label, line.x[-1], line.dashed) for line in lines] == [
        ("fedavg", last, True),
        ("fedfa-param", last, False),
    ]


def test_accuracy_refuses_an_unknown_measure(comparison: list[Run]) -> None:
    with pytest.raises(ConfigError, match="against = 'days'"):
        accuracy_figure(comparison, "days")


def test_long_curves_are_thinned() -> None:
    (line,) = accuracy_figure([make_run("fedasync", np.linspace(0, 1, 3000).tolist())]).layers
    assert isinstance(line, Line)
    assert len(line.x) == 600


def test_rounds_of_a_strategy_with_tiny_rounds_do_not_squeeze_the_others(comparison: list[Run]) -> None:
    tiny = make_run("fedasync", [0.5] * 100)
    figure = accuracy_figure([*comparison, tiny], "rounds")
    assert figure.x_range == (0, pytest.approx(1.01 * 2 * 4))
    assert "Cut at 8.00 of 100 rounds" in figure.caption


def test_time_to_target_bars_mark_what_was_missed(odd: list[Run]) -> None:
    figure = time_to_target_figure(odd, TARGET)
    assert [name for _, name in figure.y_ticks] == ["fedasync", "fedavg", "only </script><b>$x_1$ & co"]
    notes = [layer.text for layer in figure.layers if isinstance(layer, Note)]
    assert notes[1:] == ["8.00 s  not reached by 1 of 2", "not reached"]
    bars = [layer for layer in figure.layers if isinstance(layer, Boxes)]
    assert [(bar.right, bar.hatched) for bar in bars[1:]] == [((8.0,), True)]
    (dots,) = (layer for layer in figure.layers if isinstance(layer, Dots))
    assert (dots.x, dots.hover) == ((8.0,), ("seed 1: 8.00 s",))


def test_waiting_is_what_the_schedule_says(comparison: list[Run], odd: list[Run]) -> None:
    assert waiting_share(comparison[0]) == pytest.approx((SLOW - FAST) / (2 * SLOW))
    assert waiting_share(comparison[1]) == 0
    # The refused client does not wait but works again: 2 s of waiting in its first round, 3 s in the second.
    assert waiting_share(odd[0]) == pytest.approx((2 + 3) / (2 * 8))
    assert waiting_share(odd[2]) == 0, "nothing ran"
    batches = replace(comparison[1], manifest=comparison[1].manifest | {"refill": "batch"})
    assert waiting_share(batches) == pytest.approx(1 / (2 * 7)), "the first arrival waits a second for version 1"


def test_every_slot_holds_one_client_at_a_time(comparison: list[Run], odd: list[Run]) -> None:
    for run in (*comparison, *odd):
        found = segments(run, until=np.inf)
        assert len(found) == len(run.updates)
        for slot in range(2):
            lane = sorted((s.start, s.free) for s in found if s.slot == slot)
            assert all(free <= start for (_, free), (start, _) in pairwise(lane))
        assert {s.slot for s in found} <= {0, 1}


def test_timeline_shows_work_waiting_and_refusals(odd: list[Run]) -> None:
    figure = timeline_figure(odd)
    boxes = {layer.label: layer for layer in figure.layers if isinstance(layer, Boxes)}
    assert list(zip(boxes["waiting"].left, boxes["waiting"].right, strict=True)) == [(2, 4), (5, 8)]
    assert boxes["lost or refused"].hover[0] == "client 0: 0.00 to 1.00 s, refused: not finite (NaN or Inf)"
    assert figure.y_ticks[1][1] == "only </script><b>$x_1$ & co\n0 % waiting"


def test_timeline_of_many_slots_shows_the_first(comparison: list[Run]) -> None:
    wide = replace(comparison[0], manifest=comparison[0].manifest | {"concurrency": 1000})
    assert "The first 96 slots" in timeline_figure([wide]).caption


def test_long_labels_are_stacked_in_narrow_places(comparison: list[Run]) -> None:
    run = replace(comparison[1], manifest=comparison[1].manifest | {"label": "fedfa-param:window=2"})
    for figure in (timeline_figure([run]), staleness_figure([run]), time_to_target_figure([run], TARGET)):
        assert figure.y_ticks[0][1].startswith("fedfa-param\nwindow=2")


def test_staleness_shares(comparison: list[Run]) -> None:
    figure = staleness_figure(comparison)
    fedavg, fedfa = (layer for layer in figure.layers if isinstance(layer, Boxes))
    assert fedavg.hover == ("staleness from 0: 100.0 %",)
    assert fedfa.hover == tuple(f"staleness from {k}: {100 * n / 8:.1f} %" for k, n in ((0, 6), (1, 1), (3, 1)))


def test_label_bubbles_have_areas_in_proportion() -> None:
    run = make_run("fedavg", (0.5,), clients=CLIENTS)
    figure = label_figure(run.clients, run.seed)
    (dots,) = figure.layers
    assert isinstance(dots, Dots)
    assert dots.diameter[0] / dots.diameter[1] == pytest.approx((25 / 100) ** 0.5)
    assert dots.hover == ("client 0, label 9: 25 examples", "client 1, label 9: 100 examples")
    many = pl.DataFrame({"client": range(250), "label": ["a"] * 250, "examples": [1] * 250})
    crowd = label_figure(many, 0)
    assert "The first 100 of 250 clients" in crowd.caption
    assert [len(layer.x) for layer in crowd.layers if isinstance(layer, Dots)] == [100]


def test_colours_are_stable_and_distinct() -> None:
    names = ["fedavg", "fedfa-param", "mine", "yours"]
    chosen = colours(names)
    assert chosen == colours(reversed(names))
    assert len(set(chosen.values())) == 4
    assert chosen["fedfa-param"] == colours(["fedfa-param"])["fedfa-param"]
    assert set(colours(f"s{i}" for i in range(25)).values()) == set(PALETTE)


def test_figures_are_drawn_alike_on_paper_and_screen(odd: list[Run], tmp_path: Path) -> None:
    figure = timeline_figure(odd)
    (axes,) = draw(figure).axes
    assert axes.get_yticklabels()[0].get_text() == figure.y_ticks[0][1]
    assert len(axes.collections) == len(as_plotly(figure)["data"]) == len(figure.layers)
    save(figure, tmp_path / "a")
    save(figure, tmp_path / "b")
    for kind, magic in (("pdf", b"%PDF"), ("png", b"\x89PNG")):
        content = (tmp_path / "a" / f"timeline.{kind}").read_bytes()
        assert content.startswith(magic)
        assert content == (tmp_path / "b" / f"timeline.{kind}").read_bytes(), "not the same bytes twice"


def test_runs_are_plotted(comparison: list[Run]) -> None:
    assert len(fedfa.plot(comparison).axes[0].get_lines()) >= 2
    assert fedfa.plot(comparison[0], "updates").axes[0].get_xlabel() == "accepted updates"


# The page ------------------------------------------------------------------------------------------------------------

ALWAYS = {"accuracy-seconds", "accuracy-rounds", "timeline", "staleness"}


def test_report_files(comparison: list[Run], tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path, target=TARGET, command="fedfa compare x.toml --seeds '1 2'")
    assert page == tmp_path / "report.html"
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in ALWAYS | {"time-to-target", "labels"} for kind in ("pdf", "png")}
    text = page.read_text()
    assert "fedfa compare x.toml --seeds &#39;1 2&#39;" in text
    assert "2.40 times as fast" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures", "report.html"]


def test_report_of_one_run_without_target_or_clients(comparison: list[Run], tmp_path: Path) -> None:
    write_report([replace(comparison[1], clients=pl.DataFrame())], tmp_path)
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == ALWAYS


def test_report_takes_the_target_of_the_manifest(comparison: list[Run], tmp_path: Path) -> None:
    run = replace(comparison[1], manifest=comparison[1].manifest | {"target": TARGET})
    write_report([run], tmp_path)
    assert (tmp_path / "figures" / "time-to-target.pdf").is_file()


def test_report_refuses_nonsense(comparison: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no runs"):
        write_report([], tmp_path)
    with pytest.raises(ConfigError, match=r"target = 70"):
        write_report(comparison, tmp_path, target=70)
    assert list(tmp_path.iterdir()) == []


def test_shared_settings() -> None:
    a = {"seed": 1, "task": {"lr": 0.1, "data": "x"}, "strategy": {"name": "a"}}
    b = {"seed": 2, "task": {"lr": 0.1, "data": "y"}, "strategy": {"name": "b"}}
    assert shared([a, b]) == {"task": {"lr": 0.1}}
    assert shared([a]) == a


@pytest.mark.parametrize("which", ["comparison", "odd"])
def test_page_in_a_browser(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Offline, every figure is drawn, nothing is asked of any network, and nothing is complained about."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    runs: list[Run] = request.getfixturevalue(which)
    page_file = write_report(runs, tmp_path, target=TARGET)
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    complaints: list[str] = []
    requests: list[str] = []
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", *quiet])
        context = browser.new_context(viewport={"width": 390, "height": 800})
        context.set_offline(True)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda failed: complaints.append(f"failed: {failed.url}"))
        page.on("request", lambda made: requests.append(made.url))
        page.goto(page_file.as_uri())
        page.wait_for_function("[...document.querySelectorAll('.plot')].every(d => d.querySelector('.main-svg'))")
        drawn = page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.plot')].map(d => "
            "[d.id, d.querySelectorAll('.main-svg .scatterlayer .trace, .main-svg .barlayer .trace').length]))"
        )
        labels = page.locator("#summary tbody th").all_inner_texts()
        ticks = page.locator("#timeline .ytick").all_text_contents()
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        browser.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]
    expected = ALWAYS | {"time-to-target"} | ({"labels"} if which == "comparison" else set())
    assert set(drawn) == expected
    assert all(count > 0 for count in drawn.values()), drawn
    assert labels == list(dict.fromkeys(run.label for run in runs)), "labels are shown as they are, whatever they hold"
    assert [tick.startswith(label) for tick, label in zip(ticks, labels, strict=True)] == [True] * len(labels), ticks
    assert overflow <= 0, "the page scrolls sideways on a phone"
