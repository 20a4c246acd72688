"""The page: its verdict, its files, and how it looks in a real browser."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedfa.errors import ConfigError
from fedfa.report.page import verdict, write_report
from fedfa.report.tables import summarise
from fedfa.runs.run import Run
from tests.helpers.browser import Browser
from tests.helpers.reports import TARGET, make_run


def test_the_verdict_in_words(comparison: list[Run], odd: list[Run]) -> None:
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


def test_a_report_without_runs_or_with_a_wrong_target_is_refused(comparison: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no runs"):
        write_report([], tmp_path)
    with pytest.raises(ConfigError, match=r"target = 70"):
        write_report(comparison, tmp_path, target=70)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("which", ["comparison", "odd"])
def test_page_in_a_browser(which: str, request: pytest.FixtureRequest, tmp_path: Path, chromium: Any) -> None:
    """Offline, every figure is drawn, without a request to the network and without an error."""
    runs: list[Run] = request.getfixturevalue(which)
    page_file = write_report(runs, tmp_path, target=TARGET)
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    context.set_offline(True)
    page, failed = context.new_page(), []
    page.on("requestfailed", lambda request: failed.append(request.url))
    shown = Browser(page, page_file.as_uri())
    page.wait_for_function("[...document.querySelectorAll('.plot')].every(d => d.querySelector('.main-svg'))")
    traces = shown.traces()
    labels = page.locator("#summary tbody th").all_inner_texts()
    ticks = page.locator("#timeline .ytick").all_text_contents()
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    context.close()
    assert shown.errors == failed == []
    assert [url for url in shown.requests if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]
    assert set(traces) == ALWAYS | {"time-to-target"} | ({"labels"} if which == "comparison" else set())
    assert all(count > 0 for count in traces.values()), traces
    assert labels == list(dict.fromkeys(run.label for run in runs)), "labels are shown as they are, whatever they hold"
    assert [tick.startswith(label) for tick, label in zip(ticks, labels, strict=True)] == [True] * len(labels), ticks
    assert overflow <= 0, "the page scrolls sideways on a phone"
