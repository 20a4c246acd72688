"""Runs under way, as others see them: the file they write, the page, who may open it."""

import http.client
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import polars as pl
import pytest

import fedfa
from fedfa.errors import ConfigError
from fedfa.runs import live
from fedfa.runs.recorder import UPDATE_COLUMNS, Outcome, Recorder, Table
from fedfa.runs.snapshot import Snapshot
from fedfa.runs.store import read_run
from fedfa.watch import Watch
from fedfa.watch.metrics import metrics
from fedfa.watch.runs import Runs, Seen
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


@pytest.mark.parametrize(
    ("outcome", "parts"),
    [
        ("accepted", ("accepted", "")),
        ("refused: not finite", ("refused", "not finite")),
        ("failed: KeyError: 'a: b'", ("failed", "KeyError: 'a: b'")),
        ("lost", ("lost", "")),
    ],
)
def test_outcomes_have_a_kind_and_a_reason(outcome: str, parts: tuple[str, str]) -> None:
    assert Outcome.parse(outcome) == parts


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
                "outcome": self.record.code_of(Outcome.parse(text)), "bytes_up": 10, "bytes_down": 30,
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


def written(folder: Path) -> Snapshot:
    return Snapshot.from_json((folder / "live.json").read_text())


def test_the_file_is_bounded_and_its_sums_are_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path / "run")
    for arrivals in (0, 3, 300, 5000, 1, 12_000):
        made.go_on(arrivals)
        writer.tick(made.run, 1.5)
        assert (tmp_path / "run" / "live.json").stat().st_size < 60_000
        snapshot = written(tmp_path / "run")
        totals = snapshot.totals
        updates, evaluations = made.record.update_frame(), made.record.evaluation_frame()
        accepted = updates.filter(updates["outcome"] == "accepted")
        assert totals.outcomes == {
            "accepted": len(accepted), "refused": len(updates) - len(accepted), "failed": 0, "lost": 0,
        }  # fmt: skip
        assert sum(totals.reasons.values()) == len(updates) - len(accepted)
        assert sum(totals.staleness.counts) == len(accepted)
        assert totals.staleness.sum == accepted["staleness"].sum()
        assert totals.staleness.max == (accepted["staleness"].max() or 0)
        assert sum(totals.arrivals_per_bin.versions) == sum(totals.arrivals_per_bin.accepted) == len(accepted)
        assert sum(totals.arrivals_per_bin.not_taken) == len(updates) - len(accepted)
        assert totals.bytes_down == 30 * len(updates)
        last = updates.tail(200)
        assert [arrival.dispatch for arrival in totals.recent] == last["dispatch"].to_list()
        assert [arrival.accepted for arrival in totals.recent] == (last["outcome"] == "accepted").to_list()
        if arrivals:
            first, latest = totals.evaluations[0], totals.evaluations[-1]
            assert (first.updates, first.seconds, first.version) == evaluations.row(0)[:3]
            assert (latest.updates, latest.seconds, latest.version) == evaluations.row(-1)[:3]
        assert snapshot.in_flight == len(made.run.in_flight)
        assert [flight.client for flight in snapshot.longest] == list(made.run.in_flight)[:40]
    width = totals.staleness.width
    assert list(totals.staleness.counts) == np.histogram(accepted["staleness"], bins=width * np.arange(65))[0].tolist()
    assert 150 < len(totals.evaluations) <= 301
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["live.json"]
    json.dumps(view("", {"run": Seen("running", snapshot=snapshot)}, ""), allow_nan=False)


def test_a_snapshot_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    made, writer = Made(), live.Live(tmp_path)
    made.go_on(500)
    writer.tick(made.run, 1.5)
    text = (tmp_path / "live.json").read_text()
    assert "NaN" in text, "losses that are not finite are kept as they are"
    assert Snapshot.from_json(text).to_json() == text
    run = live.over(simulate(tmp_path / "run"))
    assert Snapshot.from_json(run.to_json()) == run


def damage(snapshot: dict[str, Any], what: str) -> Any:
    """What is in a live.json that fedfa did not write, or not like this."""
    totals = snapshot["totals"]
    match what:
        case "half":
            return json.dumps(snapshot)[:1000]
        case "empty":
            return ""
        case "list":
            return [snapshot]
        case "foreign":
            return {"state": "running", "url": "http://localhost:8080"}
        case "one key short":
            return {key: value for key, value in snapshot.items() if key != "rates"}
        case "text for a number":
            return snapshot | {"seconds": "12"}
        case "flag for a number":
            return snapshot | {"version": True}
        case "unknown state":
            return snapshot | {"state": "sleeping"}
        case "table for a list":
            return snapshot | {"totals": totals | {"staleness": totals["staleness"] | {"counts": {}}}}
        case "ragged columns":
            return snapshot | {"totals": totals | {"recent": totals["recent"] | {"client": [1]}}}
        case _:
            return None


@pytest.mark.parametrize(
    "what",
    [
        "half", "empty", "list", "foreign", "one key short", "text for a number", "flag for a number", "unknown state",
        "table for a list", "ragged columns", "null",
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_left_out(tmp_path: Path, what: str) -> None:
    made = Made()
    made.go_on(20)
    live.Live(tmp_path / "good").tick(made.run, 1.5)
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    assert set(Runs(tmp_path).look()) == {"good", "bad"}
    file = tmp_path / "bad" / "live.json"
    damaged = damage(json.loads(file.read_text()), what)
    file.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    runs = Runs(tmp_path).look()
    assert set(runs) == {"good"}
    assert view("bad", runs, "")["run"] == "good"


def test_an_error_that_is_called_like_a_state_is_an_error(tmp_path: Path) -> None:
    made, writer = Made(), live.Live(tmp_path)
    writer.end(made.run, "never began")
    assert not (tmp_path / "live.json").exists()
    writer.tick(made.run, 1.0)
    for error in ("finished", "running", "interrupted"):
        writer.end(made.run, error)
        runs = Runs(tmp_path).look()
        shown = view("", runs, "")
        assert (shown["kind"], shown["standing"]) == ("failed", f"ended: {error}")
        assert 'fedfa_run_finished{run="."} 0' in metrics(runs)
    writer.end(made.run, None)
    assert view("", Runs(tmp_path).look(), "")["kind"] == "stopped"


def test_rates_are_of_the_last_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path)
    for second in range(200):
        made.run.accepted, made.run.strategy.version, made.run.now = second**2, second, 2.0 * second
        writer.tick(made.run, float(second))
    rates = written(tmp_path).rates
    assert (rates.wall.updates, rates.wall.versions) == (pytest.approx((199**2 - 139**2) / 60), 1.0)
    assert (rates.clock.updates, rates.clock.versions) == (pytest.approx((199**2 - 139**2) / 120), 0.5)


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
    cells = [one["cells"] for one in shown["longest"]]
    assert [(client, lasts) for client, _, lasts, _ in cells] == [("5", "101 s"), ("7", "100 s")]
    assert all(one["slow"] for one in shown["longest"])
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", since) for _, since, *_ in cells)
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
    seen: list[Snapshot] = []

    def look() -> bool:
        seen.append(written(parts))
        return True

    with pytest.raises(KeyboardInterrupt):
        simulate(parts, interrupted=look, stop=fedfa.Stop(updates=10**6))
    assert seen[0].state == "running"
    assert seen[0].in_flight == 10
    begun = written(parts)
    assert begun.state == Runs(parts).look()["."].state == "interrupted"
    records = shutil.copytree(parts, tmp_path / "records", ignore=shutil.ignore_patterns("live.json", "checkpoint.npz"))
    left = Runs(records).look()["."].snapshot
    assert left is not None
    assert left.state == "interrupted"
    assert left.totals.evaluations == begun.totals.evaluations
    simulate(parts, resume=True, stop=fedfa.Stop(updates=1))
    for folder in (whole, parts):
        assert not [path.name for path in folder.iterdir() if "live" in path.name]
    finished = live.over(run)
    assert finished == live.over(read_run(whole))
    assert finished.totals.outcomes["lost"] == (run.updates["outcome"] != "accepted").sum() > 0
    points = [(e.updates, e.seconds, e.version, e.accuracy, e.loss) for e in finished.totals.evaluations]
    assert points == list(run.evaluations.drop("step").iter_rows())


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
    state |= {"state": "running", "written": state["written"] - 600}
    state["about"]["label"] = 'a "label"\n<b>'
    (folder / "killed" / "live.json").write_text(json.dumps(state))
    (folder / "saved").mkdir()
    (folder / "saved" / "checkpoint.npz").touch()
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[Watch]:
    watch = Watch(folder, token=TOKEN)
    thread = threading.Thread(target=watch.serve)
    thread.start()
    try:
        yield watch
    finally:
        watch.close()
        thread.join()


@pytest.fixture
def watch(folder: Path) -> Iterator[Watch]:
    with serving(folder) as watch:
        yield watch


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
    assert set(finished["figures"]) == {"accuracy", "loss", "arrivals", "staleness", "timeline"}


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
    assert runs.look()["."].state == "finished"
    (tmp_path / "later" / "updates.parquet").write_bytes(b"damaged")
    damaged = Runs(tmp_path / "later").look()["."]
    assert (damaged.state, damaged.snapshot) == ("failed", None)
    assert "cannot be read" in damaged.ended


# Errors --------------------------------------------------------------------------------------------------------------


def test_what_goes_wrong_is_told_to_the_browser_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A record without one of its columns is more than the page can stand."""
    simulate(tmp_path)
    file = tmp_path / "updates.parquet"
    rows = pl.read_parquet(file)
    rows.drop("outcome").write_parquet(file)
    with serving(tmp_path) as watch:
        for path in ("data.json", "metrics", "data.json"):
            status, headers, text = ask(watch, f"/{TOKEN}/{path}")
            assert (status, text) == (500, "an error; the terminal of 'fedfa watch' says which\n")
            assert headers["Cache-Control"] == "no-store"
        assert ask(watch, f"/{TOKEN}/")[0] == 200
        said = [record.getMessage() for record in caplog.records if record.name == "fedfa"]
        assert [line.split(" cannot")[0] for line in said] == ["fedfa watch: data.json", "fedfa watch: metrics"]
        assert all("outcome" in line for line in said)
        assert TOKEN not in caplog.text
        assert "Traceback" in caplog.text
        rows.write_parquet(file)
        (tmp_path / "manifest.json").touch()  # so that it is read again
        assert ask(watch, f"/{TOKEN}/data.json")[0] == 200
        rows.drop("seconds").write_parquet(file)
        (tmp_path / "manifest.json").touch()
        assert ask(watch, f"/{TOKEN}/data.json")[0] == 500
        assert "seconds" in caplog.records[-1].getMessage()


def test_a_browser_that_hangs_up_is_no_error(
    watch: Watch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[BaseException | None] = []
    noticed, handle = threading.Event(), watch.server.handle_error

    def handle_error(*arguments: Any) -> None:
        met.append(sys.exception())
        handle(*arguments)
        noticed.set()

    monkeypatch.setattr(watch.server, "handle_error", handle_error)
    with socket.create_connection(watch.server.server_address[:2]) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET /{TOKEN}/plotly.js HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not just closed
    assert noticed.wait(20)
    assert isinstance(met[0], ConnectionError)
    assert not [record for record in caplog.records if record.name == "fedfa"]
    try:
        raise RuntimeError("while an answer was sent")
    except RuntimeError:
        watch.server.handle_error(None, ("127.0.0.1", 0))
    assert [(record.levelno, record.name) for record in caplog.records] == [(logging.ERROR, "fedfa")]
    assert "while an answer was sent" in caplog.text


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


# In a browser --------------------------------------------------------------------------------------------------------


class Browser:
    """The page of ``fedfa watch`` in a real browser, and what it asked for and complained about."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(120_000)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda made: self.requests.append(made.url))
        page.goto(address)

    def wait_for(self, state: str) -> None:
        self.page.locator(f"#state.{state}").wait_for()

    def tile(self, name: str) -> str:
        return self.page.locator(f".tile:has(span:text-is('{name}')) b").inner_text()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            self.page.wait_for_timeout(200)
        pytest.fail(f"never came true; the page says {self.page.locator('#state').inner_text()}")

    def traces(self) -> dict[str, int]:
        """How much each figure shows."""
        return self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.plot')].map(d => "
            "[d.id, d.querySelectorAll('.main-svg .scatterlayer .trace, .main-svg .barlayer .trace').length]))"
        )


@pytest.fixture
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield browser
        browser.close()


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
    """Waiting, running, interrupted, finished, server gone: the page follows by itself, without a complaint."""
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
    assert shown.complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in shown.requests), shown.requests
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0
    shown.wait_for("gone")


def test_the_page_says_where_an_error_is_told(tmp_path: Path, chromium: Any) -> None:
    simulate(tmp_path)
    pl.read_parquet(tmp_path / "updates.parquet").drop("outcome").write_parquet(tmp_path / "updates.parquet")
    with serving(tmp_path) as watch:
        shown = Browser(chromium.new_page(), watch.address)
        shown.wait_for("gone")
        assert shown.page.locator("#state").inner_text().startswith("fedfa watch met an error; the terminal")
        shown.page.close()
