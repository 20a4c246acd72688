"""A run under way, for others to look at: ``live.json`` in its folder, which ``fedfa watch`` shows.

The file is rewritten at most once a second and is of bounded size however long the run: curves are thinned, histograms
grow coarser, of arrivals and clients in flight only the last and the longest are listed. It holds nothing that the run
itself needs: it is renamed into place but not flushed to disk, and a finished run has none.
"""

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from fedfa.runs.recorder import ACCEPTED, EVALUATION_COLUMNS, UPDATE_COLUMNS, Recorder
from fedfa.runs.run import INTERRUPTED, Run
from fedfa.strategies.base import Strategy

if TYPE_CHECKING:
    from fedfa.runs.stop import Stop

logger = logging.getLogger("fedfa")

FILE = "live.json"
EVERY_SECONDS = 1.0
RATE_SECONDS = 60.0
"""Rates are of the last minute."""
MOST_EVALUATIONS = 300
MOST_ARRIVALS = 200
MOST_IN_FLIGHT = 200
MOST_REASONS = 30
LONGEST_REASON = 200
MOST_BINS = 64

_COLUMN = {name: number for number, name in enumerate(UPDATE_COLUMNS)}
_SHOWN = [_COLUMN[name] for name in ("dispatch", "client", "dispatched_seconds", "seconds", "outcome", "staleness")]

_SCORES = list(EVALUATION_COLUMNS).index("loss") + 1
"""Of an evaluation, so many columns are shown."""


class Underway(Protocol):
    """What is asked of a run under way, simulated or deployed."""

    label: str
    seed: int
    strategy: Strategy
    record: Recorder
    stop: "Stop"
    now: float
    """Virtual seconds since its beginning; of no account where the clock is the wall's."""
    accepted: int

    @property
    def in_flight(self) -> Mapping[int, Any]:
        """By client, in the order in which they were started: things with dispatch, client, started, base_version."""
        ...

    def made_with(self) -> Mapping[str, Any]:
        """The settings; of these ``strategy``, ``task`` and ``num_clients`` are shown."""
        ...


class Live:
    """Keeps the ``live.json`` of one run up to date.

    ``tick`` is to be called often, also while nothing arrives; it does something once a second. A run whose clients
    work in real time says ``clock="wall"``: then the wall seconds that ``tick`` is told are the run's own, on which
    rows and flights were timed, and clients may join. ``record.write_run`` takes the file away; a run that ends before
    calls ``end``, so that the page can say so.
    """

    def __init__(self, folder: Path, clock: Literal["virtual", "wall"] = "virtual") -> None:
        self._folder, self._clock = folder, clock
        self._tally = Tally()
        self._marks: deque[tuple[float, float, int, int]] = deque()
        self._about: dict[str, Any] = {}
        self._due = -math.inf
        self._wall = 0.0

    def tick(self, run: Underway, wall_seconds: float) -> None:
        """Write the file anew if a second has passed; ``wall_seconds``: how long the run has been computed so far."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._wall = wall_seconds
            self._write(run, "running")

    def end(self, run: Underway, why: str) -> None:
        """Say why the run stopped before its end; a run that never began says nothing."""
        if self._about:
            self._write(run, why)

    def _write(self, run: Underway, state: str) -> None:
        path = self._folder / FILE
        try:
            if not self._about or self._clock == "wall":
                path.parent.mkdir(parents=True, exist_ok=True)
                self._about = about(run.made_with(), run.label, run.seed, run.strategy.concurrency, self._clock)
            text = json.dumps(self._snapshot(run, state), separators=(",", ":"))
            beside = path.with_name(f".{FILE}")
            beside.write_text(text)
            beside.replace(path)
        except OSError as error:  # nothing that a run should end for
            logger.warning("%s: cannot be written (%s); 'fedfa watch' shows nothing new", path, error.strerror)
            self._due = math.inf

    def _snapshot(self, run: Underway, state: str) -> dict[str, Any]:
        tally, record, version = self._tally, run.record, run.strategy.version
        seconds = self._wall if self._clock == "wall" else run.now
        for rows in record.updates.since(tally.arrivals):
            tally.add_updates(rows, lambda: record.outcomes)
        for rows in record.evaluations.since(tally.evaluated):
            tally.add_evaluations(rows)
        marks = self._marks
        marks.append((self._wall, seconds, run.accepted, version))
        while marks[0][0] < self._wall - RATE_SECONDS and len(marks) > 2:
            marks.popleft()
        return {
            **self._about,
            "state": state,
            "written": time.time(),
            "wall_seconds": self._wall,
            "seconds": seconds,
            "accepted": run.accepted,
            "version": version,
            "stop": run.stop.limits,
            "share_done": run.stop.share_done(run.accepted, seconds, self._wall),
            "rates": rates(marks[0], marks[-1]),
            "in_flight": len(run.in_flight),
            "longest": [
                [flight.dispatch, flight.client, flight.started, flight.base_version]
                for flight in islice(run.in_flight.values(), MOST_IN_FLIGHT)
            ],
            **tally.snapshot(),
        }


def over(run: Run) -> dict[str, Any]:
    """What a run that is over looks like, in the same form, from its records."""
    manifest, tally = run.manifest, Tally()
    outcomes = [ACCEPTED, *(text for text in run.updates["outcome"].unique().sort() if text != ACCEPTED)]
    numbers = {text: number for number, text in enumerate(outcomes)}
    codes = run.updates["outcome"].replace_strict(numbers) if len(run.updates) else []
    columns = [codes if name == "outcome" else run.updates[name] for name in UPDATE_COLUMNS]
    tally.add_updates(np.array(columns, np.float64).T, lambda: outcomes)
    tally.add_evaluations(run.evaluations.to_numpy())
    accepted, wall = len(run.accepted), manifest["wall_seconds"]
    return {
        **about(manifest, run.label, run.seed, manifest["concurrency"], manifest.get("clock", "virtual")),
        "state": INTERRUPTED if run.unfinished else "finished",
        "ended": manifest["ended"],
        "wall_seconds": wall,
        "seconds": run.seconds,
        "accepted": accepted,
        "version": manifest["version"],
        "stop": manifest["stop"],
        "share_done": 1.0,
        "rates": rates((0.0, 0.0, 0, 0), (wall, run.seconds, accepted, manifest["version"])),
        "in_flight": 0,
        "longest": [],
        **tally.snapshot(),
    }


def about(made_with: Mapping[str, Any], label: str, seed: int, concurrency: int, clock: str) -> dict[str, Any]:
    """What does not change while a run goes."""
    return {
        "label": label,
        "seed": seed,
        "strategy": made_with["strategy"],
        "task": made_with["task"],
        "num_clients": made_with["num_clients"],
        "concurrency": concurrency,
        "clock": clock,
    }


def rates(before: Sequence[float], after: Sequence[float]) -> dict[str, dict[str, float]]:
    """Updates and versions per second of the wall and of the run's own clock, between two marks."""
    wall, seconds, updates, versions = (b - a for a, b in zip(before, after, strict=True))
    return {
        name: {"updates": updates / span if span > 0 else 0.0, "versions": versions / span if span > 0 else 0.0}
        for name, span in (("wall", wall), ("clock", seconds))
    }


class Tally:
    """Sums over a run's rows: each row is looked at once, and nothing here grows with their number."""

    def __init__(self) -> None:
        self.arrivals = self.evaluated = 0
        self._version = 0
        self._counts = np.zeros(0, np.int64)
        self._texts: list[str] = []
        self._bytes = np.zeros(2)
        self._staleness = Bins(1, 1.0)
        self._staleness_sum = self._staleness_max = 0.0
        self._pace = Bins(3, 2.0**-10)
        self._recent = np.empty((0, len(_SHOWN)))
        self._curve: list[list[float]] = []
        self._thinning = 1
        self._last: list[float] = []
        self._best = -math.inf

    def add_evaluations(self, evaluations: np.ndarray) -> None:
        for number, row in enumerate(evaluations[:, :_SCORES].tolist(), self.evaluated):
            if number % self._thinning == 0:
                self._curve.append(row)
            if len(self._curve) > MOST_EVALUATIONS:
                self._curve, self._thinning = self._curve[::2], 2 * self._thinning
            self._last, self._best = row, max(self._best, row[3])
        self.evaluated += len(evaluations)

    def add_updates(self, updates: np.ndarray, outcomes: Callable[[], list[str]]) -> None:
        """``outcomes`` gives the texts of all outcomes by number."""
        if not len(updates):
            return
        self.arrivals += len(updates)
        codes = updates[:, _COLUMN["outcome"]].astype(np.int64)
        if codes.max() >= len(self._texts):
            self._texts = outcomes()
        counts = np.bincount(codes, minlength=len(self._texts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self._bytes += updates[:, [_COLUMN["bytes_up"], _COLUMN["bytes_down"]]].sum(axis=0)
        taken = codes == 0
        seconds, version = updates[:, _COLUMN["seconds"]], updates[:, _COLUMN["version"]]
        self._pace.add(seconds, np.stack([taken, ~taken, np.diff(version, prepend=self._version)]))
        self._version = version[-1]
        staleness = updates[taken, _COLUMN["staleness"]]
        self._staleness.add(staleness, np.ones((1, len(staleness))))
        self._staleness_sum += staleness.sum()
        self._staleness_max = max(self._staleness_max, staleness.max(initial=0.0))
        self._recent = np.concatenate([self._recent, updates[-MOST_ARRIVALS:, _SHOWN]])[-MOST_ARRIVALS:]

    def snapshot(self) -> dict[str, Any]:
        kinds = dict.fromkeys((ACCEPTED, "refused", "failed", "lost"), 0)
        reasons: dict[str, int] = {}
        for number in np.argsort(-self._counts, kind="stable").tolist():
            text, count = self._texts[number], int(self._counts[number])
            kind = text.partition(":")[0]
            kinds[kind] = kinds.get(kind, 0) + count
            if text != ACCEPTED and count:
                shown = text[:LONGEST_REASON] if len(reasons) < MOST_REASONS else "other reasons"
                reasons[shown] = reasons.get(shown, 0) + count
        curve = self._curve if not self._last or self._curve[-1] is self._last else [*self._curve, self._last]
        up, down = self._bytes.tolist()
        return {
            "arrivals": self.arrivals,
            "outcomes": kinds,
            "reasons": reasons,
            "bytes_up": int(up),
            "bytes_down": int(down),
            "evaluations": curve,
            "best_accuracy": self._best if self.evaluated else None,
            "staleness": {
                "width": self._staleness.width,
                "counts": self._staleness.counts[0].tolist(),
                "sum": self._staleness_sum,
                "max": self._staleness_max,
            },
            "pace": {
                "width": self._pace.width,
                **dict(zip(("accepted", "not_taken", "versions"), self._pace.counts.tolist(), strict=True)),
            },
            "recent": self._recent.tolist(),
        }


class Bins:
    """Sums in equal bins from 0 on; all grow twice as wide whenever a number lies beyond the last."""

    def __init__(self, rows: int, width: float) -> None:
        self.width, self.counts = width, np.zeros((rows, MOST_BINS))

    def add(self, at: np.ndarray, amounts: np.ndarray) -> None:
        """Add each row's amounts to the bins of these numbers."""
        while at.max(initial=0.0) >= MOST_BINS * self.width:
            merged = self.counts.reshape(len(self.counts), -1, 2).sum(axis=2)
            self.counts = np.concatenate([merged, np.zeros_like(merged)], axis=1)
            self.width *= 2
        places = (at / self.width).astype(np.int64)
        self.counts += [np.bincount(places, row, minlength=MOST_BINS) for row in amounts]
