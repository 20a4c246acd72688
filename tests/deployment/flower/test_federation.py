"""A federation on this machine: its ports, its certificates, its end. No process is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfa.deployment import journal
from fedfa.deployment.flower.federation import CONNECTION, Federation
from fedfa.errors import EngineError
from fedfa.runs.store import read_run
from tests.helpers.federations import APPS, EXAMPLE, finished, slow, wait_until


def test_no_two_federations_are_given_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfa.deployment.flower.federation.PORTS", range(20000, 20006))
    made: list[Federation] = []
    with pytest.raises(EngineError, match="no port from 20000 to 20005 is free"):
        made.extend(Federation(folder=tmp_path) for _ in range(7))
    ports = {each.port for each in made}
    assert len(ports) == len(made)
    made[0].close()
    again = Federation(folder=tmp_path)
    assert again.port == made[0].port
    for each in (again, *made):
        each.close()


def test_a_daemon_that_ends_by_itself_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(folder=tmp_path)
    monkeypatch.setattr(federation, "start_run", lambda app, config: federation._popen(["sleep", "1"], None))
    federation.start("node0", "sh", "-c", "echo the port is taken; exit 1")
    federation.run(EXAMPLE, {})
    federation.close()
    assert [record.getMessage() for record in caplog.records] == [
        "node0 ended by itself; its last words: the port is taken"
    ]


def make_certificates(folder: Path) -> None:
    """A certificate authority and a certificate for this machine."""
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=fedfa-test -keyout ca.key -out ca.crt"
        " -addext keyUsage=critical,keyCertSign",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile names",
    ):
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


@slow
def test_tls_and_node_authentication(tmp_path: Path) -> None:
    """Over TLS, a registered node trains; one with an unregistered key gets nothing."""
    make_certificates(tmp_path)
    authority = str(tmp_path / "ca.crt")
    for name in ("known", "unknown"):
        key = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True)
    superlink = [
        "--ssl-ca-certfile", authority, "--ssl-certfile", str(tmp_path / "server.pem"),
        "--ssl-keyfile", str(tmp_path / "server.key"), "--enable-supernode-auth",
    ]  # fmt: skip
    (tmp_path / "federation").mkdir()
    out = tmp_path / "run"
    with Federation(0, tmp_path / "federation", (superlink, f'root-certificates = "{authority}"')) as federation:
        subprocess.run(
            ["flwr", "supernode", "register", str(tmp_path / "known.pub"), CONNECTION],
            env=federation.environment, check=True, capture_output=True,
        )  # fmt: skip
        for number, name in enumerate(("known", "unknown")):
            keys = ["--root-certificates", authority, "--auth-supernode-private-key", str(tmp_path / name)]
            federation.start_node(number, security=keys)
        federation.start_run(APPS / "tiny", {"out": str(out), "stop-updates": 3}, quiet=True)
        wait_until(finished(out), 120, federation, "the end")
        plain = federation.start_node(2)  # no TLS at all
        time.sleep(2)
        assert "SuperNode ID" not in (federation.folder / "node2.log").read_text()
        plain.kill()
    assert federation.processes() == []
    assert "SuperNode ID" not in (federation.folder / "node1.log").read_text(), "the unknown one must not get in"
    run = read_run(out)
    assert len(run.accepted) == 3
    assert run.manifest["num_clients"] == 1


@slow
def test_ctrl_c_stops_everything_it_started(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fedfa.cli",
        "deploy",
        "try",
        str(EXAMPLE),
        "--nodes",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    started = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (tmp_path / "run" / journal.FOLDER).exists():
        assert time.monotonic() < until
        time.sleep(0.2)
    assert len(processes_below(tmp_path)) >= 5
    started.send_signal(signal.SIGINT)
    _, printed = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "Continue with: fedfa deploy try" in printed
    assert processes_below(tmp_path) == []
    assert list(tmp_path.glob("fedfa-federation-*")) == []


def processes_below(folder: Path) -> list[str]:
    """Command lines of processes whose FLWR_HOME lies in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={folder}".encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_text())
        except OSError:
            continue
    return found
