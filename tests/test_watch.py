"""Runs under way, as others see them: the file they write, the page, who may open it."""

import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import fedfa
from fedfa.errors import ConfigError
from fedfa.runs import snapshot as live
from fedfa.runs.recorder import UPDATE_COLUMNS, Recorder, Table
from fedfa.runs.store import read_run
from fedfa.watch import Watch
from fedfa.watch.metrics import metrics
from fedfa.watch.runs import Runs
from fedfa.watch.view import view

TOKEN = "0123456789abcdefXYZ-_"
FEDFA = [sys.executable, "-m", "fedfa.cli"]
QUICK = ["--set", "data.clients=10", "--set", "strategy.concurrency=4", "--set", "model.hidden=8"]


# The file ------------------------------------------------------------------------------------------------------------


def test_rows_since() -> None:
    table = Table({"a": float, "b": float})
    for number in range(1000):
        table.append((number, -number))
        if number in (300, 301, 700):
            table.pack_if_due(rows=1)
        if number % 97 == 0:
            for start in (0, 1, 250, 301, 302, number - 1, number, number + 1, number + 5):
                rows = np.concatenate([np.empty((0, 2)), *table.since(max(0, start))])
                assert rows[:, 0].tolist() == list(range(max(0, start), number + 1))
    assert table.array()[:, 1].tolist() == [-n for n in range(1000)]


class Made:
    """A run with rows of any number and kind."""

    def __init__(self) -> None:
        self.record = Recorder()
        self.rng = np.random.default_rng(0)
        self.run: Any = SimpleNamespace(
            label="made up", seed=3, strategy=SimpleNamespace(version=0, concurrency=7), record=self.record,
            stop=fedfa.Stop(updates=10**6), now=0.0, accepted=0, in_flight={},
            made_with=lambda: {"strategy": {"name": "x"}, "task": "t", "num_clients": 5000},
        )  # fmt: skip

    def go_on(self, arrivals: int) -> None:
        run = self.run
        for _ in range(arrivals):
            number = len(self.record.updates)
            run.now += float(self.rng.exponential(0.3))
            text = "accepted" if self.rng.random() < 0.9 else f"refused: {number} is a reason of its own {'x' * 300}"
            run.accepted += text == "accepted"
            run.strategy.version += text == "accepted"
            row = dict.fromkeys(UPDATE_COLUMNS, 0.0) | {
                "seconds": run.now, "client": number % 5000, "dispatch": number, "dispatched_seconds": run.now - 2,
                "staleness": int(self.rng.exponential(40)), "version": run.strategy.version,
                "outcome": self.record.outcome(text), "bytes_up": 10, "bytes_down": 30,
            }  # fmt: skip
            self.record.updates.append(tuple(row.values()))
            if number % 7 == 0:
                self.record.evaluations.append(
                    (run.accepted, run.now, run.strategy.version, number / 1e5, math.nan, math.nan)
                )
        run.in_flight = {
            client: SimpleNamespace(dispatch=10**6 + client, client=client, started=run.now - 1, base_version=3)
            for client in range(4000)
        }


def test_the_file_is_bounded_and_its_sums_are_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path / "run")
    for arrivals in (0, 3, 300, 5000, 1, 12_000):
        made.go_on(arrivals)
        writer.tick(made.run, 1.5)
        text = (tmp_path / "run" / "live.json").read_text()
        assert len(text) < 60_000
        state = json.loads(text)
        updates, evaluations = made.record.update_frame(), made.record.evaluation_frame()
        accepted = updates.filter(updates["outcome"] == "accepted")
        assert state["outcomes"] == {
            "accepted": len(accepted), "refused": len(updates) - len(accepted), "failed": 0, "lost": 0,
        }  # fmt: skip
        assert sum(state["reasons"].values()) == len(updates) - len(accepted)
        assert sum(state["staleness"]["counts"]) == len(accepted)
        assert state["staleness"]["sum"] == accepted["staleness"].sum()
        assert state["staleness"]["max"] == (accepted["staleness"].max() or 0)
        assert sum(state["pace"]["versions"]) == sum(state["pace"]["accepted"]) == len(accepted)
        assert state["bytes_down"] == 30 * len(updates)
        assert [row[0] for row in state["recent"]] == updates["dispatch"].tail(200).to_list()
        if arrivals:
            assert state["evaluations"][0][:3] == list(evaluations.row(0)[:3])
            assert state["evaluations"][-1][:3] == list(evaluations.row(-1)[:3])
        assert state["in_flight"] == len(made.run.in_flight)
    width, counts = state["staleness"]["width"], state["staleness"]["counts"]
    assert counts == np.histogram(accepted["staleness"], bins=width * np.arange(65))[0].tolist()
    assert 150 < len(state["evaluations"]) <= 301
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["live.json"]
    json.dumps(view("", {"run": state | {"age": 0.0}}, ""), allow_nan=False)


def test_rates_are_of_the_last_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path)
    for second in range(200):
        made.run.accepted, made.run.strategy.version, made.run.now = second**2, second, 2.0 * second
        writer.tick(made.run, float(second))
    rates = json.loads((tmp_path / "live.json").read_text())["rates"]
    assert rates["wall"] == {"updates": pytest.approx((199**2 - 139**2) / 60), "versions": 1.0}
    assert rates["clock"] == {"updates": pytest.approx((199**2 - 139**2) / 120), "versions": 0.5}


def test_on_a_wall_clock_time_goes_on_while_nothing_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path, clock="wall")
    made.go_on(30)
    made.run.in_flight = {
        5: SimpleNamespace(dispatch=30, client=5, started=made.run.now - 1, base_version=3),
        7: SimpleNamespace(dispatch=31, client=7, started=made.run.now, base_version=4),
    }
    made.run.made_with = lambda: {"strategy": {"name": "x"}, "task": "t", "num_clients": 8}
    writer.tick(made.run, made.run.now + 100)
    shown = view("", Runs(tmp_path).look(), "")
    assert [(client, lasts, slow) for client, _, lasts, _, slow in shown["longest"]] == [
        ("5", "101 s", True), ("7", "100 s", True),
    ]  # fmt: skip
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", since) for _, since, *_ in shown["longest"])
    bars = {trace["name"]: trace for trace in shown["figures"]["timeline"]["data"]}
    assert [round(length, 6) for length in bars["training for long"]["x"]] == [
        round(min(made.run.now + 100, ran, 80.0 * 1.1), 6) for ran in (101.0, 100.0)
    ]


def simulate(out: Path, **settings: Any) -> fedfa.Run:
    weather = fedfa.Weather(dropout=0.1, timeout_seconds=5.0)
    return fedfa.simulate(
        "fedfa-param",
        weather=weather,
        out=out,
        engine={"executor": "inline"},
        **{"stop": fedfa.Stop(updates=60)} | settings,
    )


def test_a_run_that_is_over_leaves_no_live_file(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run = simulate(whole)
    seen: list[dict[str, Any]] = []

    def look() -> bool:
        seen.append(json.loads((parts / "live.json").read_text()))
        return True

    with pytest.raises(KeyboardInterrupt):
        simulate(parts, interrupted=look, stop=fedfa.Stop(updates=10**6))
    assert seen[0]["state"] == "running"
    assert seen[0]["in_flight"] == 10
    assert json.loads((parts / "live.json").read_text())["state"] == "interrupted"
    assert Runs(parts).look()["."]["state"] == "interrupted"
    records = shutil.copytree(parts, tmp_path / "records", ignore=shutil.ignore_patterns("live.json", "checkpoint.npz"))
    left = Runs(records).look()["."]
    assert left["state"] == "interrupted"
    assert left["evaluations"] == json.loads((parts / "live.json").read_text())["evaluations"]
    simulate(parts, resume=True, stop=fedfa.Stop(updates=1))
    for folder in (whole, parts):
        assert not [path.name for path in folder.iterdir() if "live" in path.name]
    state = live.over(run)
    assert state == live.over(read_run(whole))
    assert state["outcomes"]["lost"] == (run.updates["outcome"] != "accepted").sum() > 0
    assert state["evaluations"] == [list(row) for row in run.evaluations.drop("step").iter_rows()]


def test_a_folder_that_cannot_be_written_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "live.json").mkdir()
    made, writer = Made(), live.Live(tmp_path)
    writer.tick(made.run, 0.0)
    assert "live.json: cannot be written" in caplog.text


# The page ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run finished, one interrupted, one whose process was killed, one of which only a save is left."""
    folder = tmp_path_factory.mktemp("runs")
    simulate(folder / "finished")
    with pytest.raises(KeyboardInterrupt):
        simulate(folder / "below" / "interrupted", interrupted=lambda: True, stop=fedfa.Stop(updates=10**6))
    shutil.copytree(folder / "below" / "interrupted", folder / "killed")
    state = json.loads((folder / "killed" / "live.json").read_text())
    state |= {"state": "running", "label": 'a "label"\n<b>', "written": state["written"] - 600}
    (folder / "killed" / "live.json").write_text(json.dumps(state))
    (folder / "saved").mkdir()
    (folder / "saved" / "checkpoint.npz").touch()
    return folder


@pytest.fixture
def watch(folder: Path) -> Iterator[Watch]:
    watch = Watch(folder, token=TOKEN)
    thread = threading.Thread(target=watch.serve)
    thread.start()
    yield watch
    watch.close()
    thread.join()


def ask(watch: Watch, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", watch.server.server_address[1], timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def test_only_who_has_the_token_may_look(watch: Watch, folder: Path) -> None:
    assert watch.address == f"http://127.0.0.1:{watch.server.server_address[1]}/{TOKEN}/"
    for path in ("/", "/data.json", "/metrics", "/x/metrics", f"/{TOKEN[:-1]}/metrics", f"/{TOKEN}x/", f"/é{TOKEN}/",
                 f"/?token={TOKEN}", f"/%30{TOKEN[1:]}/"):  # fmt: skip
        assert ask(watch, path.replace("é", "%C3%A9"))[0] == 404, path
    for path in ("", "metrics", "data.json", "plotly.js", "watch.js", "data.json?run=../../etc"):
        assert ask(watch, f"/{TOKEN}/{path}")[0] == 200, path
    for path in ("../x", "finished/manifest.json", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "//etc/passwd",
                 str(folder / "finished" / "manifest.json")):  # fmt: skip
        assert ask(watch, f"/{TOKEN}/{path}")[0] == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
def test_nothing_but_reading(watch: Watch, method: str) -> None:
    status, headers, _ = ask(watch, f"/{TOKEN}/", method)
    assert status == 405
    assert headers["Allow"] == "GET"


def test_names_that_are_not_this_machines_are_refused(watch: Watch) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", "[::", ""):
        assert ask(watch, f"/{TOKEN}/data.json", Host=host)[0] == 403, host
    for host in ("localhost", "localhost:9999", "127.0.0.1:80", "[::1]:80"):
        assert ask(watch, f"/{TOKEN}/data.json", Host=host)[0] == 200, host


def test_headers_keep_the_page_to_itself(watch: Watch) -> None:
    for path in ("", "data.json", "metrics"):
        _, headers, _ = ask(watch, f"/{TOKEN}/{path}")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def test_several_runs(watch: Watch, folder: Path) -> None:
    def shown(run: str) -> dict[str, Any]:
        return json.loads(ask(watch, f"/{TOKEN}/data.json?run={run}")[2])

    kinds = {one["name"]: one["kind"] for one in shown("")["runs"]}
    assert kinds == {"below/interrupted": "stopped", "killed": "silent", "finished": "finished", "saved": "stopped"}
    assert shown("")["run"] == shown("no-such-run")["run"] == "killed"
    assert shown("killed")["standing"].startswith("no news for 10 min")
    assert shown("below/interrupted")["standing"].startswith("interrupted; continue it")
    assert "figures" not in shown("saved")
    finished = shown("finished")
    assert finished["standing"] == "finished: updates"
    assert {text: value for text, value, _ in finished["tiles"]}["updates"] == "60"
    assert finished["reasons"][0][0] == "lost: no answer in time"
    assert set(finished["figures"]) == {"accuracy", "loss", "pace", "staleness", "timeline"}


def test_runs_that_are_not_listed_are_told(watch: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> dict[str, Any]:
        return json.loads(ask(watch, f"/{TOKEN}/data.json?run=")[2])

    assert shown()["left_out"] == ""
    monkeypatch.setattr("fedfa.watch.runs.MOST_RUNS", 3)
    assert len(shown()["runs"]) == 3
    assert shown()["left_out"] == "and 1 more; watch a folder further down to see them"


def test_metrics_are_what_prometheus_reads(watch: Watch, folder: Path) -> None:
    _, headers, text = ask(watch, f"/{TOKEN}/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    types: dict[str, str] = {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in types, "all samples of a metric stand together"
                types[name] = rest
            continue
        sample = re.fullmatch(r'([a-z_]+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)', line)
        assert sample, line
        assert sample[1].removesuffix("_sum").removesuffix("_count") in types
        assert f"{sample[1]}{{{sample[2]}}}" not in found
        found[f"{sample[1]}{{{sample[2]}}}"] = float(sample[3])
    assert text.endswith("\n")
    run = read_run(folder / "finished")
    assert types["fedfa_updates_total"] == "counter"
    assert found['fedfa_updates_total{run="finished",outcome="accepted"}'] == 60
    assert found['fedfa_updates_total{run="finished",outcome="lost"}'] == len(run.updates) - 60
    assert found['fedfa_accuracy{run="finished"}'] == run.final_accuracy
    assert found['fedfa_staleness_sum{run="finished"}'] == run.accepted["staleness"].sum()
    assert found['fedfa_bytes_total{run="finished",direction="received"}'] == run.updates["bytes_up"].sum()
    assert found['fedfa_run_finished{run="killed"}'] == 0
    assert [key for key in found if 'label="a \\"label\\"\\n<b>"' in key]


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "later")
    assert runs.look() == {}
    assert view("", {}, "later")["standing"] == "waiting: there is no run in later yet"
    assert metrics({}) == "\n"
    simulate(tmp_path / "later")
    assert runs.look()["."]["state"] == "finished"
    (tmp_path / "later" / "updates.parquet").write_bytes(b"damaged")
    assert "cannot be read" in Runs(tmp_path / "later").look()["."]["state"]


def test_wrong_addresses_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "example.org", "::", "192.168.0.1"):
        with pytest.raises(ConfigError, match=r"--host .* must be this machine's own"):
            Watch(tmp_path, host=host)
    with pytest.raises(ConfigError, match="--port 70000"):
        Watch(tmp_path, port=70_000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot be used"):
            Watch(tmp_path, port=taken.getsockname()[1])
    monkeypatch.setenv("FEDFA_WATCH_TOKEN", "short")
    with pytest.raises(ConfigError, match="FEDFA_WATCH_TOKEN: must have 16"):
        Watch(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        Watch(tmp_path / "file", token=TOKEN)


def test_page_in_a_browser_while_a_run_goes(tmp_path: Path) -> None:
    """Waiting, running, interrupted, finished, server gone: the page follows by itself, without a complaint."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    environment = {key: value for key, value in os.environ.items() if key != "FEDFA_WATCH_TOKEN"}
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [*FEDFA, *words],
                cwd=tmp_path,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
        return processes[-1]

    complaints: list[str] = []
    requests: list[str] = []
    try:
        server = start("watch", "r", "--no-browser")
        assert server.stdout is not None
        address = server.stdout.readline().split()[2]
        assert len(urlsplit(address).path) > 32
        with playwright.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", *quiet])
            page = browser.new_page(viewport={"width": 390, "height": 800})
            page.set_default_timeout(120_000)
            page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda made: requests.append(made.url))
            page.goto(address)

            def wait_for(state: str) -> None:
                page.locator(f"#state.{state}").wait_for()

            def tile(name: str) -> str:
                return page.locator(f".tile:has(span:text-is('{name}')) b").inner_text()

            def until(condition: Callable[[], bool]) -> None:
                for _ in range(600):
                    if condition():
                        return
                    page.wait_for_timeout(200)
                pytest.fail(f"never came true; the page says {page.locator('#state').inner_text()}")

            wait_for("waiting")
            run = start("run", "--out", "r", *QUICK, "--set", "stop.updates=10000000", "--set", "weather.dropout=0.05")
            wait_for("running")
            until(lambda: int(tile("updates").replace(",", "")) > 50)
            before = tile("updates")
            until(lambda: tile("updates") != before)
            assert tile("training now") == "4"
            assert page.locator("#longest tbody tr").count() == 4
            drawn = page.evaluate(
                "Object.fromEntries([...document.querySelectorAll('.plot')].map(d => "
                "[d.id, d.querySelectorAll('.main-svg .scatterlayer .trace, .main-svg .barlayer .trace').length]))"
            )
            assert set(drawn) == {"accuracy", "loss", "pace", "staleness", "timeline"}
            assert all(count > 0 for count in drawn.values()), drawn
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            page.locator("#reasons td:text-is('lost: no answer in time')").wait_for()
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 130
            wait_for("stopped")
            again = start(
                "run", "--out", "r", "--resume", *QUICK, "--set", "stop.updates=1", "--set", "weather.dropout=0.05"
            )
            wait_for("finished")
            assert again.wait(120) == 0
            until(lambda: tile("updates") == f"{len(read_run(tmp_path / 'r').accepted):,}")
            assert not (tmp_path / "r" / "live.json").exists()
            assert complaints == []
            assert all(url.startswith((address, "data:", "blob:")) for url in requests), requests
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 0
            wait_for("gone")
            browser.close()
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
