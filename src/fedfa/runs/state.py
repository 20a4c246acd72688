"""What a simulation and a deployment have in common: a run's progress, its evaluations, and the decision to stop.

:class:`fedfa.simulation.engine.Simulation` changes this state on a virtual clock,
:class:`fedfa.deployment.engine.Deployment` on a real one.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from fedfa.errors import RecordError
from fedfa.executors.base import Trained
from fedfa.learning.base import EngineTask, Meanwhile
from fedfa.learning.device import Device
from fedfa.randomness import CHOICE, keyed
from fedfa.runs.checkpoint import hashed
from fedfa.runs.machine import machine
from fedfa.runs.recorder import TAKEN, Outcome, Recorder
from fedfa.runs.stop import Ending, Stop
from fedfa.strategies.base import Orders, Strategy, Update
from fedfa.strategies.vectors import Vector

GIVE_UP_AFTER = 1000
"""Arrivals in a row without an accepted one (and at least ten per slot) after which a run is hopeless."""
_SAVED = ("now", "accepted", "fruitless", "dispatches", "unfilled", "sound_at")


class StartedFlight(Protocol):
    """A dispatch whose answer is still out, with what an engine knows about it."""

    dispatch: int
    base_version: int
    client: int
    base: Vector
    started: float


F = TypeVar("F", bound=StartedFlight)


class RunState(ABC, Generic[F]):
    """The state and the rules that both engines share."""

    def __init__(
        self, *, strategy: Strategy, task: EngineTask, device: Device, stop: Stop, seed: int, label: str,
        folder: Path | None,
    ) -> None:  # fmt: skip
        self.strategy, self.task, self.stop, self.seed = strategy, task, stop, seed
        self.label, self.folder = label, folder
        self._evaluator = task.evaluator(seed, device)
        initial, self.num_trainable, self.num_frozen = task.initial(seed)
        self.initial: Vector = device.vector(initial)
        self.num_bytes: int = self.initial.nbytes
        """Bytes of the model, sent in either direction."""
        self.record = Recorder()
        self.random = random.Random(keyed(seed, CHOICE))
        self.in_flight: dict[int, F] = {}
        """By client."""
        self.now = 0.0
        self.accepted = 0
        self.fruitless = 0
        """Arrivals since the last accepted one."""
        self.gave_up: Ending | None = None
        """Why it makes no sense to go on."""
        self.dispatches = 0
        self.unfilled = 0
        """Clients that the strategy asked for while no client was idle."""
        self.last_score = (-1, math.nan, math.nan)  # version, accuracy, loss
        self.sound_at = 0
        """Accepted updates when an evaluation last was above the stop's ``diverged_below``."""

    # Arrivals --------------------------------------------------------------------------------------------------------

    def take_in(self, flight: F, trained: Trained, failure: Outcome | None = None) -> tuple[Orders, Outcome]:
        """Give an answer to the strategy, or report that none will come (``failure``), and record the arrival."""
        strategy, version = self.strategy, self.strategy.version
        orders, outcome = settle(strategy, flight, trained, failure, self.in_flight)
        del self.in_flight[flight.client]
        num_bytes = self.num_bytes
        self.record.updates.append(
            (
                self.now,
                flight.client,
                flight.dispatch,
                flight.started,
                flight.base_version,
                version - flight.base_version,
                strategy.version,
                0 if outcome is TAKEN else self.record.code_of(outcome),
                trained.loss,
                orders.delta_norm,
                trained.num_examples,
                trained.num_steps,
                0 if trained.params is None else num_bytes,
                num_bytes,
            )
        )
        if outcome is TAKEN:
            self.accepted += 1
            self.fruitless = 0
        return orders, outcome

    def not_taken(self, outcome: Outcome) -> None:
        """One more arrival that was not accepted."""
        self.fruitless += 1
        if self.fruitless >= max(GIVE_UP_AFTER, 10 * self.strategy.concurrency):
            self.gave_up = Ending("hopeless", f"{self.fruitless} arrivals in a row not taken, the last {outcome}")

    # Evaluation ------------------------------------------------------------------------------------------------------

    def judge(self, seconds: float, meanwhile: Meanwhile) -> None:
        """Evaluate the newest model, unless that was done, and record the score for this time."""
        version, stop = self.strategy.version, self.stop
        if self.last_score[0] != version:
            score = self._evaluator(self.strategy.model, meanwhile)
            self.last_score = (version, score.accuracy, score.loss)
        _, accuracy, loss = self.last_score
        sound, longest = stop.diverged_below or 0.0, stop.diverged_updates or math.inf
        if accuracy >= sound:
            self.sound_at = self.accepted
        elif (lasted := self.accepted - self.sound_at) >= longest:
            self.gave_up = Ending("diverged", f"accuracy below {sound:g} for {lasted} updates")
        step = self.strategy.step_taken
        self.record.evaluations.append(
            (self.accepted, seconds, version, accuracy, loss, math.nan if step is None else step)
        )

    # Identity --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def made_with(self) -> dict[str, Any]:
        """All settings but the seed and the stop, JSON-ready."""

    def lasting(self) -> dict[str, Any]:
        """The settings that must not change between a run and its continuation."""
        return self.made_with()

    @cached_property
    def digest(self) -> str:
        """Of the data and the initial model."""
        return self.task.digest(self.seed)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that must not change between a run and its continuation."""
        return hashed(self.lasting() | {"seed": self.seed, "digest": self.digest})

    def facts(self, ended: Ending, wall_seconds: float) -> dict[str, Any]:
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
            "ended": str(ended),
            "seconds": self.now,
            "version": strategy.version,
            "wall_seconds": round(wall_seconds, 3),
            "machine": machine(),
        }

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def common_state(self) -> dict[str, Any]:
        """The content of a checkpoint of either engine. A model that several flights started from is stored once."""
        flights = self.in_flight.values()
        return {name: getattr(self, name) for name in _SAVED} | {
            "fingerprint": self.fingerprint,
            "last_score": self.last_score,
            "flights": [_without_base(flight) for flight in flights],
            "bases": {flight.base_version: flight.base for flight in flights},
            "random": self.random.getstate(),
            "strategy": self.strategy.state_dict(),
            "record": self.record.state_dict(),
        }

    def restore_common(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Restore such content; returns the fields of the flights."""
        self.check_same(state["fingerprint"])
        for name in _SAVED:
            setattr(self, name, state[name])
        self.last_score = tuple(state["last_score"])
        kind, numbers, gauss = state["random"]
        self.random.setstate((kind, tuple(numbers), gauss))
        self.strategy.load_state_dict(state["strategy"])
        self.record.load_state_dict(state["record"])
        return [saved | {"base": state["bases"][saved["base_version"]]} for saved in state["flights"]]

    def check_same(self, fingerprint: str) -> None:
        """Raise unless the run to continue was started with the same settings."""
        if fingerprint != self.fingerprint:
            raise RecordError(f"{self.folder}: was started with other settings; resume with the same ones")


def settle(
    strategy: Strategy, flight: StartedFlight, trained: Trained, failure: Outcome | None, in_flight: Mapping[int, Any]
) -> tuple[Orders, Outcome]:
    """Give an answer to the strategy, or report that none will come."""
    if failure is not None:
        return strategy.lost(flight.client, in_flight), failure
    update = Update(
        flight.client, flight.dispatch, flight.base_version, trained.params, flight.base,
        trained.num_examples, trained.num_steps,
    )  # fmt: skip
    orders = strategy.receive(update, in_flight)
    return orders, Outcome("refused", orders.refused) if orders.refused else TAKEN


def _without_base(flight: Any) -> dict[str, Any]:
    """A flight's values, except the model it started from, which others may share."""
    return {field.name: getattr(flight, field.name) for field in fields(flight) if field.name != "base"}
