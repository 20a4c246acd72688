"""The server of ``fedfa watch``: who may ask, what is answered, and what is logged."""

import json
import logging
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedfa.errors import ConfigError
from fedfa.watch import Watch
from tests.helpers.watched import TOKEN, ask, serving, simulate


def test_only_requests_with_the_token_are_answered(watch: Watch, watched_folder: Path) -> None:
    assert watch.address == f"http://127.0.0.1:{watch.server.server_address[1]}/{TOKEN}/"
    for path in ("/", "/data.json", "/metrics", "/x/metrics", f"/{TOKEN[:-1]}/metrics", f"/{TOKEN}x/", f"/é{TOKEN}/",
                 f"/?token={TOKEN}", f"/%30{TOKEN[1:]}/"):  # fmt: skip
        assert ask(watch, path.replace("é", "%C3%A9"))[0] == 404, path
    for path in ("", "metrics", "data.json", "plotly.js", "watch.js", "data.json?run=../../etc"):
        assert ask(watch, f"/{TOKEN}/{path}")[0] == 200, path
    for path in ("../x", "finished/manifest.json", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "//etc/passwd",
                 str(watched_folder / "finished" / "manifest.json")):  # fmt: skip
        assert ask(watch, f"/{TOKEN}/{path}")[0] == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
def test_only_get_is_allowed(watch: Watch, method: str) -> None:
    status, headers, _ = ask(watch, f"/{TOKEN}/", method)
    assert status == 405
    assert headers["Allow"] == "GET"


def test_host_names_of_other_machines_are_refused(watch: Watch) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", "[::", ""):
        assert ask(watch, f"/{TOKEN}/data.json", Host=host)[0] == 403, host
    for host in ("localhost", "localhost:9999", "127.0.0.1:80", "[::1]:80"):
        assert ask(watch, f"/{TOKEN}/data.json", Host=host)[0] == 200, host


def test_headers_isolate_the_page(watch: Watch) -> None:
    for path in ("", "data.json", "metrics"):
        _, headers, _ = ask(watch, f"/{TOKEN}/{path}")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def test_several_runs(watch: Watch, watched_folder: Path) -> None:
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


def test_an_error_is_reported_to_the_browser_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A record that lacks one of its columns raises in the page."""
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
        logged = [record.getMessage() for record in caplog.records if record.name == "fedfa"]
        assert [line.split(" cannot")[0] for line in logged] == ["fedfa watch: data.json", "fedfa watch: metrics"]
        assert all("outcome" in line for line in logged)
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
