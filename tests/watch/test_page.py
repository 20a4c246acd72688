"""The page of ``fedfa watch`` in a real browser."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest

from fedfa.runs.store import read_run
from tests.helpers.browser import Browser
from tests.helpers.commands import FEDFA, QUICK
from tests.helpers.watched import serving, simulate


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``fedfa`` with these words; whatever still runs in the end is killed."""
    processes: list[subprocess.Popen[str]] = []
    environment = {key: value for key, value in os.environ.items() if key != "FEDFA_WATCH_TOKEN"}

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*FEDFA, *words], cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_page_in_a_browser_while_a_run_goes(
    tmp_path: Path, chromium: Any, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """Waiting, running, interrupted, finished, server gone: the page follows by itself, without an error."""
    server = start("watch", "r", "--no-browser")
    assert server.stdout is not None
    address = server.stdout.readline().split()[2]
    assert len(urlsplit(address).path) > 32
    shown = Browser(chromium.new_page(viewport={"width": 390, "height": 800}), address)
    shown.wait_for("waiting")
    run = start("run", "--out", "r", *QUICK, "--set", "stop.updates=10000000", "--set", "weather.dropout=0.05")
    shown.wait_for("running")
    shown.until(lambda: int(shown.tile("updates").replace(",", "")) > 50)
    before = shown.tile("updates")
    shown.until(lambda: shown.tile("updates") != before)
    assert shown.tile("training now") == "4"
    assert shown.page.locator("#longest tbody tr").count() == 4
    assert set(shown.traces()) == {"accuracy", "loss", "arrivals", "staleness", "timeline"}
    assert all(count > 0 for count in shown.traces().values())
    assert shown.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    shown.page.locator("#reasons td:text-is('lost: no answer in time')").wait_for()
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    shown.wait_for("stopped")
    again = start("run", "--out", "r", "--resume", *QUICK, "--set", "stop.updates=1", "--set", "weather.dropout=0.05")
    shown.wait_for("finished")
    assert again.wait(120) == 0
    shown.until(lambda: shown.tile("updates") == f"{len(read_run(tmp_path / 'r').accepted):,}")
    assert not (tmp_path / "r" / "live.json").exists()
    assert shown.errors == []
    assert all(url.startswith((address, "data:", "blob:")) for url in shown.requests), shown.requests
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
    shown.wait_for("gone")


def test_the_page_says_where_an_error_is_logged(tmp_path: Path, chromium: Any) -> None:
    simulate(tmp_path)
    pl.read_parquet(tmp_path / "updates.parquet").drop("outcome").write_parquet(tmp_path / "updates.parquet")
    with serving(tmp_path) as watch:
        shown = Browser(chromium.new_page(), watch.address)
        shown.wait_for("gone")
        assert shown.page.locator("#state").inner_text().startswith("fedfa watch had an error; see its terminal")
        shown.page.close()
