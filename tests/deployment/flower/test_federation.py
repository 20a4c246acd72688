"""fedfa on real Flower daemons, on this machine. Each test leaves no process behind.

Flower needs about a minute to notice a killed SuperNode or client process: the tests of these, of messages that
outlive their time, of a restarted SuperLink and of TLS run only with FEDFA_SLOW_TESTS=1.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfa.deployment import journal
from fedfa.deployment.flower.federation import CONNECTION, Federation
from fedfa.errors import EngineError
from fedfa.runs.store import read_run
from tests.deployment.test_engine import assert_journal_gives

APPS = Path(__file__).parents[2] / "flower_apps"
slow = pytest.mark.skipif("FEDFA_SLOW_TESTS" not in os.environ, reason="takes minutes; set FEDFA_SLOW_TESTS=1")
EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-digits"


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Federation]:
    (tmp_path / "federation").mkdir()
    with Federation(request.param, folder=tmp_path / "federation") as started:
        yield started
    assert started.processes() == []


def wait_until(condition: Callable[[], bool], seconds: float, federation: Federation, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            logs = {path.name: path.read_text()[-2000:] for path in federation.folder.glob("*.log")}
            raise AssertionError(f"{what}: not within {seconds} s\n" + "\n".join(f"{k}:\n{v}" for k, v in logs.items()))
        time.sleep(0.2)


def entries(folder: Path) -> list[dict]:
    """Headers in the journal of a run under way."""
    try:
        return [entry.header for entry in journal.read(folder / journal.FOLDER)]
    except FileNotFoundError:
        return []


def count(folder: Path, kind: str) -> int:
    return sum(entry["kind"] == kind for entry in entries(folder))


def losses(folder: Path) -> list[str]:
    """Why answers did not come or could not be used, in a run under way."""
    return [entry["outcome"] for entry in entries(folder) if entry["kind"] == "lost"]


def connected(federation: Federation) -> int:
    """How many nodes have reported to the SuperLink so far."""
    return (federation.folder / "superlink.log").read_text().count("Activated node_id")


def finished(folder: Path) -> Callable[[], bool]:
    return (folder / "manifest.json").exists


@pytest.mark.parametrize("federation", [0], indirect=True)
def test_misbehaving_clients_a_killed_server_and_a_stock_client(tmp_path: Path, federation: Federation) -> None:
    """Node 0 is good, 1 sends nonsense, 2 joins while the run goes and raises; the server is killed and resumed."""
    out = tmp_path / "run"
    config = {"out": str(out), "stop-updates": 6}
    federation.start_node(0)
    federation.start_node(1, config='fault="nan,shape,repeat,none"')
    federation.start_run(APPS / "tiny", config, quiet=True)
    wait_until(lambda: count(out, "update") >= 1, 90, federation, "the first update")
    federation.start_node(2, config='fault="raise"')
    wait_until(lambda: any("refused: repeat" in text for text in losses(out)), 90, federation, "the repeat")
    wait_until(lambda: any("raised" in text for text in losses(out)), 90, federation, "the late node's failure")
    (server,) = federation.processes("flwr-serverapp")
    os.kill(server, signal.SIGKILL)
    before = [entry for entry in entries(out) if entry["kind"] == "update"]

    federation.start_run(APPS / "tiny", config | {"resume": True}, quiet=True)
    wait_until(finished(out), 120, federation, "the resumed run's end")
    run = read_run(out)
    after = [entry for entry in entries(out) if entry["kind"] == "update"]
    assert after[: len(before)] == before, "no update that had come may be lost"
    assert len(run.accepted) == 6
    outcomes = dict(zip(run.updates["dispatch"], run.updates["outcome"], strict=True))
    assert {outcomes[entry["dispatch"]] for entry in after} == {"accepted", "refused: not finite (NaN or Inf)"}
    said = set(outcomes.values())
    assert "lost: the server was started again" in said
    for start in (
        "refused: wrong shape: 'flat' is",
        "refused: repeat: answers dispatch",
        "failed: the client app raised",
    ):
        assert any(text.startswith(start) for text in said), start
    failed = run.updates.filter(run.updates["outcome"].str.starts_with("failed")).to_dicts()
    pauses = [later["dispatched_seconds"] - one["seconds"] for one, later in pairwise(failed)]
    assert all(pause >= 2**nth for nth, pause in enumerate(pauses)), "bench-seconds is 1, and doubles"
    assert_journal_gives(out, model_of(out))

    out = tmp_path / "stock"
    federation.start_run(APPS / "stock", {"out": str(out), "stop-updates": 4}, quiet=True)
    wait_until(finished(out), 90, federation, "the stock clients' run")
    run = read_run(out)
    assert len(run.accepted) == 4
    assert run.accepted["num_examples"].to_list() == [32] * 4
    assert (run.accepted["train_loss"] > 0).all()
    assert run.final_accuracy > run.evaluations["accuracy"][0]


def model_of(folder: Path):
    """The final model of a run of the tiny app, as its strategy held it."""
    import numpy as np

    with np.load(folder / "model.npz") as file:
        return np.concatenate([file["weight"].ravel(), file["bias"]])


@pytest.mark.parametrize("federation", [4], indirect=True)
def test_digits_to_90_per_cent(tmp_path: Path, federation: Federation) -> None:
    out = tmp_path / "run"
    wait_until(lambda: connected(federation) == 4, 90, federation, "four nodes")
    federation.start_run(EXAMPLE, {"out": str(out)}, quiet=True)
    wait_until(finished(out), 240, federation, "90 % on the digits")
    run = read_run(out)
    assert run.manifest["ended"] == "accuracy"
    assert run.final_accuracy >= 0.9
    assert run.manifest["num_clients"] == 4
    assert set(run.accepted["client"]) == {0, 1, 2, 3}


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


def test_a_daemon_that_ends_by_itself_is_told(
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


class SlowUplink:
    """A proxy that lets only so many bytes a second through to the SuperLink."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._target, self._rate = port, bytes_per_second
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port: int = self._sockets[0].getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._sockets[0].accept()
                self._sockets.append(client)
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets.append(server)
            except OSError:  # either end is gone
                return
            threading.Thread(target=self._pump, args=(client, server, self._rate), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, 1e9), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, rate: float) -> None:
        try:
            while data := source.recv(16384):
                sink.sendall(data)
                time.sleep(len(data) / rate)
        except OSError:
            pass
        finally:
            source.close()
            sink.close()

    def close(self) -> None:
        self._sockets[0].shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for each in self._sockets:
            each.close()


@slow
@pytest.mark.parametrize("federation", [0], indirect=True)
def test_killed_nodes_killed_clients_and_a_slow_uplink(tmp_path: Path, federation: Federation) -> None:
    """Nodes 0 and 1 are good; 2 is behind a slow uplink; 3's client processes die; 4 is killed while it trains."""
    out = tmp_path / "run"
    proxy = SlowUplink(federation.port, 200_000)
    for number in (0, 1):
        federation.start_node(number, config=f'trace="{tmp_path / "fast"}"')
    federation.start_node(2, port=proxy.port, config=f'trace="{tmp_path / "slow"}"')
    federation.start_node(3, config='fault="die" fault-until=12')
    doomed = federation.start_node(4, config='fault="hang"')
    federation.start_run(
        APPS / "tiny", {"out": str(out), "strategy": "fedfa-param:concurrency=5", "stop-seconds": 100.0}, quiet=True
    )
    wait_until(lambda: count(out, "dispatch") >= 5, 90, federation, "work for all")
    time.sleep(5)
    os.killpg(doomed.pid, signal.SIGKILL)
    killed_at = time.time()
    wait_until(finished(out), 150, federation, "the end")
    proxy.close()
    run = read_run(out)
    first = {row["outcome"]: row for row in reversed(run.updates.sort("seconds").to_dicts())}
    gone, died = first["lost: the node is gone"], first["failed: the client's process died"]
    after_kill = run.manifest["started"] + gone["seconds"] - killed_at
    print(f"\nnoticed: a killed node after {after_kill:.0f} s, a client's process that died "
          f"{died['seconds'] - died['dispatched_seconds']:.0f} s after it was given work")  # fmt: skip
    arrived = {row["dispatch"]: run.manifest["started"] + row["seconds"] for row in run.accepted.to_dicts()}
    fast, slow_ones = (delays(tmp_path / name, arrived) for name in ("fast", "slow"))
    print(f"seconds from the end of training to the strategy: fast {fast}, slow {slow_ones}")
    assert min(slow_ones) > 9, "2 MB at 200 kB/s"
    assert len(fast) > 2 * len(slow_ones), "the fast ones do not wait for the slow one"
    assert max(fast) < min(slow_ones)


def delays(trace: Path, arrived: dict[int, float]) -> list[float]:
    """Seconds from the end of training to the arrival, sorted."""
    done = {int(dispatch): float(at) for dispatch, at in map(str.split, trace.read_text().splitlines())}
    return sorted(round(arrived[dispatch] - at, 1) for dispatch, at in done.items() if dispatch in arrived)


@slow
@pytest.mark.parametrize("federation", [2], indirect=True)
def test_a_killed_superlink_and_the_run_resumed_on_its_database(tmp_path: Path, federation: Federation) -> None:
    """The SuperNodes stay where they are and find the new SuperLink by themselves."""
    out = tmp_path / "run"
    config = {"out": str(out), "stop-updates": 6, "strategy": "fedavg:concurrency=2"}
    federation.start_run(APPS / "tiny", config, quiet=True)
    wait_until(lambda: count(out, "update") >= 3, 90, federation, "three updates")
    federation.superlink.kill()
    federation.superlink.wait()
    wait_until(lambda: not federation.processes("flwr-serverapp"), 20, federation, "the end of the orphaned server")
    before = [entry for entry in entries(out) if entry["kind"] == "update"]

    federation.start_superlink()
    federation.start_run(APPS / "tiny", config | {"resume": True}, quiet=True)
    wait_until(finished(out), 150, federation, "the resumed run's end")
    after = [entry for entry in entries(out) if entry["kind"] == "update"]
    assert after[: len(before)] == before
    assert len(read_run(out).accepted) == 6
    assert_journal_gives(out, model_of(out))


@slow
@pytest.mark.parametrize("federation", [1], indirect=True)
def test_a_client_that_trains_longer_than_its_message_lives(tmp_path: Path, federation: Federation) -> None:
    """Node 1 is late once: its answer counts for nothing, and it is taken back when it has caught up."""
    out = tmp_path / "run"
    federation.start_node(1, config=f'fault="late,none" late-seconds=30 trace="{tmp_path / "late"}"')
    strategy = {"strategy": "fedfa-param:concurrency=2:window=2", "ttl-seconds": 20.0}
    federation.start_run(APPS / "tiny", {"out": str(out), "stop-seconds": 120.0, **strategy}, quiet=True)
    wait_until(finished(out), 220, federation, "the end")
    run = read_run(out)
    rows = {row["dispatch"]: row for row in run.updates.to_dicts()}
    late = next(row for row in rows.values() if row["outcome"] == "lost: no answer in time")
    noticed = late["seconds"] - late["dispatched_seconds"]
    print(f"\nnoticed after {noticed:.1f} s")
    assert 20 <= noticed < 25
    done = [int(line.split()[0]) for line in (tmp_path / "late").read_text().splitlines()]
    assert done[0] == late["dispatch"], "it did train to the end, in vain"
    again = [row for row in rows.values() if row["client"] == late["client"] and row["dispatch"] > late["dispatch"]]
    assert again[0]["dispatched_seconds"] - late["seconds"] >= 1, "benched"
    assert any(row["outcome"] == "accepted" for row in again)
    others = [row["seconds"] for row in rows.values() if row["client"] != late["client"]]
    assert sum(late["dispatched_seconds"] < at < late["seconds"] for at in others) >= 2, "the others went on"
    assert_journal_gives(out, model_of(out))


@slow
def test_a_server_that_outlives_its_superlink(tmp_path: Path) -> None:
    """Away for seconds, nothing happens; away for longer than Flower waits, the run ends and can be continued."""
    (tmp_path / "federation").mkdir()
    out = tmp_path / "run"
    config = {"out": str(out), "stop-updates": 12}
    isolated = ["--insecure", "--isolation", "process"], "insecure = true"
    with Federation(3, tmp_path / "federation", isolated) as federation:
        address = f"127.0.0.1:{federation.port}"
        federation.start("superexec", "flower-superexec", "--insecure", "--runtime-api-address", address)

        def restart_superlink(after_seconds: float) -> None:
            federation.superlink.kill()
            federation.superlink.wait()
            time.sleep(after_seconds)
            federation.start_superlink()

        federation.start_run(APPS / "tiny", config, quiet=True)
        wait_until(lambda: count(out, "update") >= 2, 90, federation, "two updates")
        (server,) = federation.processes("flwr-serverapp")
        restart_superlink(10)
        so_far = count(out, "update")
        wait_until(lambda: count(out, "update") >= so_far + 4, 90, federation, "four more updates")
        assert federation.processes("flwr-serverapp") == [server], "the same process goes on"
        assert losses(out) == []

        restart_superlink(65)
        wait_until(lambda: not federation.processes("flwr-serverapp"), 60, federation, "the end of the server")
        assert json.loads((out / "live.json").read_text())["state"] == "interrupted"
        before = [entry for entry in entries(out) if entry["kind"] == "update"]
        federation.start_run(APPS / "tiny", config | {"resume": True}, quiet=True)
        wait_until(finished(out), 120, federation, "the resumed run's end")
    assert federation.processes() == []
    after = [entry for entry in entries(out) if entry["kind"] == "update"]
    assert after[: len(before)] == before
    run = read_run(out)
    assert len(run.accepted) == 12
    assert set(run.updates["outcome"]) == {"accepted", "lost: the server was started again"}
    assert_journal_gives(out, model_of(out))


def make_certificates(folder: Path) -> None:
    """An authority of our own and a certificate for this machine."""
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
    """Over TLS, a registered node trains; one with a key that nobody registered gets nothing."""
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
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "Continue with: fedfa deploy try" in said
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
