"""What a run knows of itself on either clock: how far it is, how good it was, and whether to go on.

:class:`fedfa.engine.Simulation` moves it on a virtual clock, :class:`fedfa.deployment.Deployment` on a real one.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedfa.core import Strategy
from fedfa.record import machine
from fedfa.rows import Recorder

if TYPE_CHECKING:
    from fedfa.engine import Stop

GIVE_UP_AFTER = 1000
"""Arrivals in a row without an accepted one (and at least ten per slot) after which a run is hopeless."""


class Course:
    """The state and the rules that both engines share."""

    def __init__(
        self, *, strategy: Strategy, stop: "Stop", seed: int, label: str, evaluator: Callable[..., Any]
    ) -> None:
        self.strategy, self.stop, self.seed, self.label = strategy, stop, seed, label
        self._evaluator = evaluator
        self.record = Recorder()
        self.now = 0.0
        self.accepted = 0
        self.fruitless = 0
        """Arrivals since the last accepted one."""
        self.hopeless = ""
        """Why it makes no sense to go on; empty while it does."""
        self.dispatches = 0
        self.unfilled = 0
        """Clients that the strategy has asked for and that nobody idle was there for yet."""
        self.last_score = (-1, math.nan, math.nan)  # version, accuracy, loss
        self.sound_at = 0
        """Accepted updates when an evaluation last was above the stop's ``diverged_below``."""

    def judge(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Evaluate the newest model, unless that was done, and note it for this time."""
        version, stop = self.strategy.version, self.stop
        if self.last_score[0] != version:
            score = self._evaluator(self.strategy.model, meanwhile)
            self.last_score = (version, score.accuracy, score.loss)
        _, accuracy, loss = self.last_score
        sound, longest = stop.diverged_below or 0.0, stop.diverged_updates or math.inf
        if accuracy >= sound:
            self.sound_at = self.accepted
        elif (lasted := self.accepted - self.sound_at) >= longest:
            self.hopeless = f"diverged: accuracy below {sound:g} for {lasted} updates"
        step = self.strategy.step_taken
        self.record.evaluations.append(
            (self.accepted, seconds, version, accuracy, loss, math.nan if step is None else step)
        )

    def not_taken(self, outcome: str) -> None:
        """One more arrival that was not accepted."""
        self.fruitless += 1
        if self.fruitless >= max(GIVE_UP_AFTER, 10 * self.strategy.concurrency):
            self.hopeless = f"hopeless: {self.fruitless} arrivals in a row not taken, the last {outcome}"

    def facts(self, ended: str, wall_seconds: float) -> dict[str, Any]:
        """What every manifest says of a run that is over, JSON-ready."""
        strategy = self.strategy
        return {
            "label": self.label,
            "synchronous": strategy.synchronous,
            "refill": strategy.refill_policy,
            "round_size": strategy.round_size,
            "update_weight": strategy.update_weight,
            "concurrency": strategy.concurrency,
            "seed": self.seed,
            "stop": self.stop.limits,
            "ended": ended,
            "seconds": self.now,
            "version": strategy.version,
            "wall_seconds": round(wall_seconds, 3),
            "machine": machine(),
        }
