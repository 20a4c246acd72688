"""The state of a run in progress: ``live.json`` in its folder, which ``fedfa watch`` shows.

The file holds a ``Snapshot``. It is rewritten at most once a second, and its size is bounded for any length of the run
(see ``tally.py``); of the clients in flight it lists those that have trained for the longest. The run itself does not
need it: it is renamed into place but not flushed to disk, and a finished run has none.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedfa.runs.recorder import ACCEPTED, UPDATE_COLUMNS, Recorder
from fedfa.runs.run import Run
from fedfa.runs.snapshot import About, Clock, InFlight, PerSecond, Rates, Snapshot, State
from fedfa.runs.stop import Stop
from fedfa.runs.tally import Tally
from fedfa.strategies.base import Strategy

logger = logging.getLogger("fedfa")

FILE = "live.json"
EVERY_SECONDS = 1.0
RATE_SECONDS = 60.0
"""Rates are over the last minute."""
MOST_IN_FLIGHT = 40
"""Clients in flight that fit on the page."""


class Underway(Protocol):
    """What is needed from a run in progress, simulated or deployed."""

    label: str
    seed: int
    strategy: Strategy
    record: Recorder
    stop: Stop
    now: float
    """Virtual seconds since its beginning; unused if the clock is the wall's."""
    accepted: int

    @property
    def in_flight(self) -> Mapping[int, Any]:
        """By client, in the order of dispatch: objects with dispatch, client, started, base_version."""
        ...

    def made_with(self) -> Mapping[str, Any]:
        """The settings; the page shows ``strategy``, ``task`` and ``num_clients``."""
        ...


class Mark(NamedTuple):
    """The progress of a run at some time."""

    wall_seconds: float
    seconds: float
    accepted: int
    version: int


class Live:
    """Keeps the ``live.json`` of one run up to date.

    Call ``tick`` often, also while nothing arrives; it acts once a second. A run with real clients passes
    ``clock="wall"``: then the wall seconds given to ``tick`` are the run's own clock, used for rows and flights, and
    clients may join. ``store.write_run`` removes the file. A run that stops before its end calls ``end``, so that the
    page can show it.
    """

    def __init__(self, folder: Path, clock: Clock = "virtual") -> None:
        self._folder = folder
        self._clock: Clock = clock
        self._tally = Tally()
        self._marks: deque[Mark] = deque()
        self._about: About | None = None
        self._due = -math.inf
        self._wall = 0.0

    def tick(self, run: Underway, wall_seconds: float) -> None:
        """Rewrite the file if a second has passed; ``wall_seconds``: how long the run has been computed so far."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._wall = wall_seconds
            self._write(run, "running")

    def end(self, run: Underway, error: str | None) -> None:
        """The run stopped before its end, by this error or, if None, because it was interrupted.

        A run that never began writes nothing.
        """
        if self._about is not None:
            self._write(run, "interrupted" if error is None else "failed", error or "")

    def _write(self, run: Underway, state: State, ended: str = "") -> None:
        path = self._folder / FILE
        try:
            if self._about is None or self._clock == "wall":
                path.parent.mkdir(parents=True, exist_ok=True)
                self._about = about(run.made_with(), run.label, run.seed, run.strategy.concurrency, self._clock)
            text = self._snapshot(run, self._about, state, ended).to_json()
            beside = path.with_name(f".{FILE}")
            beside.write_text(text)
            beside.replace(path)
        except OSError as error:  # not a reason to end the run
            logger.warning("%s: cannot be written (%s); 'fedfa watch' shows old data", path, error.strerror)
            self._due = math.inf

    def _snapshot(self, run: Underway, about: About, state: State, ended: str) -> Snapshot:
        tally, record, version = self._tally, run.record, run.strategy.version
        seconds = self._wall if self._clock == "wall" else run.now
        for rows in record.updates.since(tally.arrivals):
            tally.add_updates(rows, lambda: record.outcomes)
        for rows in record.evaluations.since(tally.evaluated):
            tally.add_evaluations(rows)
        marks = self._marks
        marks.append(Mark(self._wall, seconds, run.accepted, version))
        while marks[0].wall_seconds < self._wall - RATE_SECONDS and len(marks) > 2:
            marks.popleft()
        return Snapshot(
            about=about,
            state=state,
            ended=ended,
            written=time.time(),
            wall_seconds=self._wall,
            seconds=seconds,
            accepted=run.accepted,
            version=version,
            stop=run.stop.limits,
            share_done=run.stop.share_done(run.accepted, seconds, self._wall),
            rates=rates(marks[0], marks[-1]),
            in_flight=len(run.in_flight),
            longest=tuple(
                InFlight(flight.dispatch, flight.client, flight.started, flight.base_version)
                for flight in islice(run.in_flight.values(), MOST_IN_FLIGHT)
            ),
            totals=tally.totals(),
        )


def over(run: Run) -> Snapshot:
    """The same of a run that is over, from its records."""
    manifest, tally = run.manifest, Tally()
    outcomes = [ACCEPTED, *(text for text in run.updates["outcome"].unique().sort() if text != ACCEPTED)]
    numbers = {text: number for number, text in enumerate(outcomes)}
    codes = run.updates["outcome"].replace_strict(numbers) if len(run.updates) else []
    columns = [codes if name == "outcome" else run.updates[name] for name in UPDATE_COLUMNS]
    tally.add_updates(np.array(columns, np.float64).T, lambda: outcomes)
    tally.add_evaluations(run.evaluations.to_numpy())
    accepted, wall = len(run.accepted), manifest["wall_seconds"]
    return Snapshot(
        about=about(manifest, run.label, run.seed, manifest["concurrency"], manifest.get("clock", "virtual")),
        state="interrupted" if run.unfinished else "finished",
        ended=manifest["ended"],
        written=None,
        wall_seconds=wall,
        seconds=run.seconds,
        accepted=accepted,
        version=manifest["version"],
        stop=manifest["stop"],
        share_done=1.0,
        rates=rates(Mark(0.0, 0.0, 0, 0), Mark(wall, run.seconds, accepted, manifest["version"])),
        in_flight=0,
        longest=(),
        totals=tally.totals(),
    )


def about(made_with: Mapping[str, Any], label: str, seed: int, concurrency: int, clock: Clock) -> About:
    """The constant facts of a run, from its settings or its manifest."""
    return About(
        label=label,
        seed=seed,
        strategy=made_with["strategy"],
        task=made_with["task"],
        num_clients=made_with["num_clients"],
        concurrency=concurrency,
        clock=clock,
    )


def rates(before: Mark, after: Mark) -> Rates:
    """Updates and versions per second between two marks."""
    updates, versions = after.accepted - before.accepted, after.version - before.version

    def per(span: float) -> PerSecond:
        return PerSecond(updates / span, versions / span) if span > 0 else PerSecond(0.0, 0.0)

    return Rates(wall=per(after.wall_seconds - before.wall_seconds), clock=per(after.seconds - before.seconds))
