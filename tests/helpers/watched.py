"""Runs to watch, made up or simulated, and requests to the page that shows them."""

import http.client
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import fedfa
from fedfa.runs.recorder import UPDATE_COLUMNS, Outcome, Recorder
from fedfa.runs.snapshot import Snapshot
from fedfa.watch import Watch

TOKEN = "0123456789abcdefXYZ-_"


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


def simulate(out: Path, **settings: Any) -> fedfa.Run:
    weather = fedfa.Weather(dropout=0.1, timeout_seconds=5.0)
    return fedfa.simulate(
        "fedfa-param",
        weather=weather,
        out=out,
        engine={"executor": "inline"},
        **{"stop": fedfa.Stop(updates=60)} | settings,
    )


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


def ask(watch: Watch, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", watch.server.server_address[1], timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text
