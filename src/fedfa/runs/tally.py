"""Sums over a run's rows for ``live.json``, updated as rows come in.

Nothing here grows with the number of rows: curves are thinned, histograms become coarser, and only the last arrivals
are kept.
"""

import math
from collections.abc import Callable
from typing import get_args

import numpy as np

from fedfa.runs.recorder import ACCEPTED, EVALUATION_COLUMNS, UPDATE_COLUMNS, Outcome, OutcomeKind
from fedfa.runs.snapshot import ArrivalsPerBin, EvaluationPoint, RecentArrival, Staleness, Totals

MOST_EVALUATIONS = 300
MOST_ARRIVALS = 200
MOST_REASONS = 30
LONGEST_REASON = 200
MOST_BINS = 64

_COLUMN = {name: number for number, name in enumerate(UPDATE_COLUMNS)}
_SHOWN = [_COLUMN[name] for name in ("dispatch", "client", "dispatched_seconds", "seconds", "outcome")]
_SCORES = [list(EVALUATION_COLUMNS).index(name) for name in ("updates", "seconds", "version", "accuracy", "loss")]


class Tally:
    """Sums over a run's rows: each row is read once, and nothing here grows with their number."""

    def __init__(self) -> None:
        self.arrivals = self.evaluated = 0
        self._version = 0
        self._counts = np.zeros(0, np.int64)
        self._texts: list[str] = []
        self._kinds: list[str] = []
        self._bytes = np.zeros(2)
        self._staleness = Bins(1, 1.0)
        self._staleness_sum = self._staleness_max = 0.0
        self._arrivals_per_bin = Bins(3, 2.0**-10)
        self._recent = np.empty((0, len(_SHOWN)))
        self._curve: list[EvaluationPoint] = []
        self._thinning = 1
        self._last: EvaluationPoint | None = None
        self._best = -math.inf

    def add_evaluations(self, evaluations: np.ndarray) -> None:
        for number, row in enumerate(evaluations[:, _SCORES].tolist(), self.evaluated):
            updates, seconds, version, accuracy, loss = row
            point = EvaluationPoint(int(updates), seconds, int(version), accuracy, loss)
            if number % self._thinning == 0:
                self._curve.append(point)
            if len(self._curve) > MOST_EVALUATIONS:
                self._curve, self._thinning = self._curve[::2], 2 * self._thinning
            self._last, self._best = point, max(self._best, accuracy)
        self.evaluated += len(evaluations)

    def add_updates(self, updates: np.ndarray, outcomes: Callable[[], list[str]]) -> None:
        """``outcomes`` gives the texts of all outcomes by number."""
        if not len(updates):
            return
        self.arrivals += len(updates)
        codes = updates[:, _COLUMN["outcome"]].astype(np.int64)
        if codes.max() >= len(self._texts):
            self._texts = outcomes()
            self._kinds = [Outcome.parse(text).kind for text in self._texts]
        counts = np.bincount(codes, minlength=len(self._texts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self._bytes += updates[:, [_COLUMN["bytes_up"], _COLUMN["bytes_down"]]].sum(axis=0)
        taken = codes == 0
        seconds, version = updates[:, _COLUMN["seconds"]], updates[:, _COLUMN["version"]]
        self._arrivals_per_bin.add(seconds, np.stack([taken, ~taken, np.diff(version, prepend=self._version)]))
        self._version = version[-1]
        staleness = updates[taken, _COLUMN["staleness"]]
        self._staleness.add(staleness, np.ones((1, len(staleness))))
        self._staleness_sum += staleness.sum()
        self._staleness_max = max(self._staleness_max, staleness.max(initial=0.0))
        self._recent = np.concatenate([self._recent, updates[-MOST_ARRIVALS:, _SHOWN]])[-MOST_ARRIVALS:]

    def totals(self) -> Totals:
        kinds, reasons = self._outcomes()
        curve = self._curve
        if self._last is not None and curve[-1] is not self._last:
            curve = [*curve, self._last]
        up, down = self._bytes.tolist()
        accepted, not_taken, versions = map(tuple, self._arrivals_per_bin.counts.tolist())
        return Totals(
            arrivals=self.arrivals,
            outcomes=kinds,
            reasons=reasons,
            bytes_up=int(up),
            bytes_down=int(down),
            evaluations=tuple(curve),
            best_accuracy=self._best if self.evaluated else None,
            staleness=Staleness(
                width=self._staleness.width,
                counts=tuple(self._staleness.counts[0].tolist()),
                sum=float(self._staleness_sum),
                max=float(self._staleness_max),
            ),
            arrivals_per_bin=ArrivalsPerBin(self._arrivals_per_bin.width, accepted, not_taken, versions),
            recent=tuple(
                RecentArrival(int(dispatch), int(client), started, seconds, code == 0)
                for dispatch, client, started, seconds, code in self._recent.tolist()
            ),
        )

    def _outcomes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Arrivals by kind of outcome, and those not accepted by reason, the most frequent first."""
        kinds: dict[str, int] = dict.fromkeys(get_args(OutcomeKind), 0)
        reasons: dict[str, int] = {}
        for number in np.argsort(-self._counts, kind="stable").tolist():
            text, kind, count = self._texts[number], self._kinds[number], int(self._counts[number])
            kinds[kind] = kinds.get(kind, 0) + count
            if text != ACCEPTED and count:
                shown = text[:LONGEST_REASON] if len(reasons) < MOST_REASONS else "other reasons"
                reasons[shown] = reasons.get(shown, 0) + count
        return kinds, reasons


class Bins:
    """Sums in equal bins from 0 on; the bin width doubles whenever a number lies beyond the last bin."""

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
