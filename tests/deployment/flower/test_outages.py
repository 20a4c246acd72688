"""Outages of every part of a federation."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfa.deployment.flower.federation import Federation
from fedfa.runs.store import read_run
from tests.helpers.deployments import assert_journal_gives
from tests.helpers.federations import APPS, count, entries, finished, losses, model_of, slow, wait_until


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
def test_a_client_that_trains_longer_than_the_time_to_live(tmp_path: Path, federation: Federation) -> None:
    """Node 1 is late once: its answer is not used, and it gets work again when it has caught up."""
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
    assert done[0] == late["dispatch"], "it trained to the end, and its answer was not used"
    again = [row for row in rows.values() if row["client"] == late["client"] and row["dispatch"] > late["dispatch"]]
    assert again[0]["dispatched_seconds"] - late["seconds"] >= 1, "benched"
    assert any(row["outcome"] == "accepted" for row in again)
    others = [row["seconds"] for row in rows.values() if row["client"] != late["client"]]
    assert sum(late["dispatched_seconds"] < at < late["seconds"] for at in others) >= 2, "the others went on"
    assert_journal_gives(out, model_of(out))


@slow
def test_a_server_that_outlives_its_superlink(tmp_path: Path) -> None:
    """After an absence of seconds the run goes on; after one longer than Flower waits it ends and can be resumed."""
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
