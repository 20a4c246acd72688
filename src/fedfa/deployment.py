"""The wall-clock engine: the same strategy, with real clients somewhere else.

The counterpart of :class:`fedfa.engine.Simulation`. It talks to the world through :class:`World`: orders go out,
events come back through one queue and are handled one at a time, in the order of arrival.

Everything that changes the run is an entry in the journal (see :mod:`fedfa.journal`): it is on disk first, and then
applied. A run that was killed reads its last checkpoint, applies the entries after it, and is where it was. Work that
was out then is handed out anew.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from fedfa import checkpoint, journal
from fedfa.core import Flight, Strategy, Update
from fedfa.course import Course
from fedfa.engine import Stop
from fedfa.errors import RecordError, in_a_line, require
from fedfa.live import Live
from fedfa.randomness import CHOICE, keyed
from fedfa.record import CHECKPOINT, INTERRUPTED, Run, atomic, is_finished, read_run, write_run
from fedfa.rows import ACCEPTED
from fedfa.strategies import Port
from fedfa.task import Task
from fedfa.world import Event, Failure, Nodes, Order, World

logger = logging.getLogger("fedfa")

LONGEST_BENCH = 600.0
"""A node that fails again and again is tried once in so many seconds."""
LARGEST_SEGMENT = 1 << 30
"""Bytes of journal after which a checkpoint is written, however recent the last one."""
_SAVED = ("arrived", "started_unix", "clients", "benched")
"""What a checkpoint holds beyond what a simulation's does."""


@dataclass(slots=True)
class OnTheWay(Flight):
    """A work order that is out."""

    client: int
    base: np.ndarray
    started: float
    node: int


def check_strategy(strategy: Strategy) -> None:
    """Raise a ConfigError where it cannot be carried out with real clients."""
    require(
        not (isinstance(strategy, Port) and strategy.laggards == "recall"),
        "port-urgent: cannot call back clients that train elsewhere; use port-non-urgent, which waits for them",
    )


class Deployment(Course):
    """The state of one run with real clients, and the loop that moves it."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        task: Task,
        world: World,
        stop: Stop,
        folder: Path,
        seed: int = 0,
        evaluate_every: int = 10,
        keep_updates: bool = False,
        bench_seconds: float = 5.0,
        checkpoint_seconds: float = 60.0,
        label: str = "",
        target: float | None = None,
        command: str = "",
        progress: Callable[["Deployment"], None] = lambda run: None,
    ) -> None:
        check_strategy(strategy)
        require(evaluate_every >= 1, f"evaluate_every = {evaluate_every}: must be at least 1")
        require(bench_seconds >= 0, f"bench_seconds = {bench_seconds}: must be 0 or more")
        label = label or strategy.name or type(strategy).__name__
        super().__init__(strategy=strategy, stop=stop, seed=seed, label=label, evaluator=task.evaluator(seed))
        self.task, self.world, self.folder = task, world, folder
        self.evaluate_every, self.keep_updates = evaluate_every, keep_updates
        self._bench_seconds, self._checkpoint_seconds = bench_seconds, checkpoint_seconds
        self._target, self._command, self._progress = target, command, progress
        self.initial, self.num_trainable, self.num_frozen = task.initial(seed)
        self.num_bytes = self.initial.nbytes
        self._live = Live(folder, clock="wall")

        self.arrived = 0.0
        """When the last answer came."""
        self.started_unix = 0.0
        self.in_flight: dict[int, OnTheWay] = {}
        self.clients: dict[int, int] = {}
        """The number in this run of every node ever seen."""
        self.benched: dict[int, tuple[int, float]] = {}
        """By client: failures in a row, and until when it gets no work."""
        self.random = random.Random(keyed(seed, CHOICE))
        self._present: frozenset[int] = frozenset()
        self._short_of_nodes = False
        self._journal: journal.Journal | None = None
        self._clock_offset = 0.0
        self._saved_at = 0.0

    # The loop --------------------------------------------------------------------------------------------------------

    def run(self, resume: bool = False) -> Run:
        """Train until the stop; with ``resume``, continue the unfinished run in the folder."""
        if resume and is_finished(self.folder):
            return self._finished_run()
        try:
            with np.errstate(over="ignore"):  # a client's absurd numbers are refused, not warned about
                self._resume() if resume else self._begin()
                while not (ended := self._reached()):
                    self._handle_next()
                    self._fill()
                    self._evaluate_if_due()
                    self._progress(self)
                    self._live.tick(self, self._clock())
                    self._save_if_due()
                return self._finish(ended)
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            self._live.end(self, None if stopped else in_a_line(error))
            if stopped and len(self.record.evaluations):
                write_run(self.folder, self._so_far(INTERRUPTED))
            raise
        finally:
            if self._journal is not None:
                self._journal.close()

    def _clock(self) -> float:
        return self._clock_offset + time.monotonic()

    def _patience(self) -> float:
        """How long nothing can happen but events; a second at most, so that whoever watches sees the clock move."""
        return min(1.0, max(0.0, self._most_seconds - self._clock()))

    def _handle_next(self) -> None:
        try:
            self._handle(self.world.events.get(timeout=self._patience()))
        except Empty:
            pass

    def _handle(self, event: Event) -> None:
        if isinstance(event, Nodes):
            for node in sorted(event.present - self.clients.keys()):
                self._note("client", node=node, client=len(self.clients), durable=False)
            self._present = event.present
            return
        flight = next((f for f in self.in_flight.values() if f.dispatch == event.dispatch), None)
        if flight is None:
            logger.warning("an answer to dispatch %d, which nobody waits for, is ignored", event.dispatch)
            return
        which: dict[str, Any] = {"client": flight.client, "dispatch": flight.dispatch}
        if isinstance(event, Failure):
            self._note("lost", **which, outcome=event.outcome, blameless=event.blameless)
            return
        done = event.trained
        if wrong := self._unusable(done.params):
            self._note("lost", **which, outcome=f"refused: {wrong}")
            return
        self._note(
            "update", done.params, **which, base_version=flight.base_version,
            num_examples=done.num_examples, num_steps=done.num_steps, loss=done.loss,
        )  # fmt: skip

    def _unusable(self, params: Any) -> str:
        """Why this cannot even be kept; what is in it, the strategy looks at."""
        if not isinstance(params, np.ndarray) or params.dtype != np.float32 or params.shape != self.initial.shape:
            shape = getattr(params, "shape", type(params).__name__)
            return f"wrong shape {shape}, not {self.initial.shape} of float32"
        return ""

    def _fill(self) -> None:
        """Hand the newest model to idle nodes, drawn uniformly, as far as there are any."""
        busy = {flight.node for flight in self.in_flight.values()}
        now = self._clock()
        idle = [
            node
            for node in sorted(self._present - busy, key=self.clients.__getitem__)
            if self.benched.get(self.clients[node], (0, 0.0))[1] <= now
        ]
        while self.unfilled and idle:
            node = idle.pop(int(self.random.random() * len(idle)))
            client, dispatch = self.clients[node], self.dispatches
            self._note(
                "dispatch", client=client, node=node, dispatch=dispatch, base_version=self.strategy.version,
                durable=False,
            )  # fmt: skip
            self.world.send(node, self._order(dispatch, client))
        if self.unfilled and not self._short_of_nodes:
            logger.info("waiting for nodes: %d more could train than are connected and idle", self.unfilled)
        self._short_of_nodes = self.unfilled > 0

    def _order(self, dispatch: int, client: int) -> Order:
        strategy = self.strategy
        epochs = self.task.local.epochs_of(self.seed, client)
        return Order(dispatch, strategy.version, strategy.model, epochs, strategy.local.prox_mu, self.seed)

    # What changes the state: written down first, and applied in the same way when a run is continued ------------------

    def _note(self, kind: str, params: np.ndarray | None = None, *, durable: bool = True, **facts: Any) -> None:
        assert self._journal is not None
        header = {"kind": kind, "seconds": self._clock(), **facts}
        self._journal.append(header, params, durable)
        self._apply(header, params)

    def _apply(self, entry: Mapping[str, Any], params: np.ndarray | None) -> None:
        self.now = entry["seconds"]
        match entry["kind"]:
            case "begin":
                self.started_unix = entry["started"]
                self.unfilled += self.strategy.begin(self.initial, self.num_trainable).start
            case "client":
                self.clients[entry["node"]] = entry["client"]
            case "dispatch":
                client = entry["client"]
                self.in_flight[client] = OnTheWay(
                    entry["dispatch"], entry["base_version"], client, self.strategy.model, self.now, entry["node"]
                )
                self.dispatches += 1
                self.unfilled -= 1
            case "update":
                assert params is not None
                self._arrive(entry, params)
            case "lost":
                self._arrive(entry, None)

    def _arrive(self, entry: Mapping[str, Any], params: np.ndarray | None) -> None:
        client, strategy, version = entry["client"], self.strategy, self.strategy.version
        flight = self.in_flight[client]
        if params is None:
            orders, outcome = strategy.lost(client, self.in_flight), entry["outcome"]
        else:
            update = Update(
                client, flight.dispatch, flight.base_version, params, flight.base,
                entry["num_examples"], entry["num_steps"],
            )  # fmt: skip
            orders = strategy.receive(update, self.in_flight)
            outcome = f"refused: {orders.refused}" if orders.refused else ACCEPTED
        del self.in_flight[client]
        self.unfilled += orders.start
        self.arrived = self.now
        self.record.updates.append(
            (
                self.now,
                client,
                flight.dispatch,
                flight.started,
                flight.base_version,
                version - flight.base_version,
                strategy.version,
                self.record.outcome(outcome),
                entry.get("loss", math.nan),
                orders.delta_norm,
                entry.get("num_examples", 0),
                entry.get("num_steps", 0.0),
                0 if params is None else self.num_bytes,
                self.num_bytes,
            )
        )
        if outcome == ACCEPTED:
            self.accepted += 1
            self.fruitless = 0
            self.benched.pop(client, None)
        elif not entry.get("blameless"):
            self._bench(client, flight.dispatch, outcome)

    def _bench(self, client: int, dispatch: int, outcome: str) -> None:
        """No work for this client for a while, and twice as long each time in a row."""
        failures = self.benched.get(client, (0, 0.0))[0] + 1
        pause = min(LONGEST_BENCH, self._bench_seconds * 2 ** min(failures - 1, 30))
        self.benched[client] = (failures, self.now + pause)
        logger.warning("client %d, dispatch %d, %s; no work for it for %g s", client, dispatch, outcome, pause)
        self.not_taken(outcome)

    # Evaluation and end ----------------------------------------------------------------------------------------------

    def _evaluate_if_due(self) -> None:
        evaluations = self.record.evaluations
        if self.accepted % self.evaluate_every == 0 and self.accepted >= len(evaluations) * self.evaluate_every:
            self._evaluate()

    def _evaluate(self) -> None:
        self.judge(self.arrived, lambda: None)
        _, accuracy, loss = self.last_score
        logger.info("%d updates, %.1f s: accuracy %.4f, loss %.4f", self.accepted, self.arrived, accuracy, loss)

    @property
    def _most_seconds(self) -> float:
        return min(self.stop.seconds or math.inf, self.stop.wall_seconds or math.inf)

    def _reached(self) -> str:
        """Which limit has been met; empty while none has."""
        if self.hopeless:
            return self.hopeless
        if self.stop.updates is not None and self.accepted >= self.stop.updates:
            return "updates"
        if self.stop.accuracy is not None and self.last_score[1] >= self.stop.accuracy:
            return "accuracy"
        return "seconds" if self._clock() >= self._most_seconds else ""

    def _finish(self, ended: str) -> Run:
        self.now = min(self._clock(), self._most_seconds)
        if self.record.evaluation_frame()["updates"][-1] != self.accepted:
            self._evaluate()
        run = self._so_far(ended)
        assert self._journal is not None
        with atomic(self.folder / "model.npz") as file:
            tensors = self.task.state_dict(self.strategy.model, self.seed)
            np.savez(file, allow_pickle=False, **{name: tensor.numpy() for name, tensor in tensors.items()})
        self._journal.close()
        write_run(self.folder, run)
        if not self.keep_updates:
            for segment in journal.segments(self._journal.folder).values():
                segment.unlink()
            self._journal.folder.rmdir()
        return run

    def _so_far(self, ended: str) -> Run:
        """The run as it stands."""
        manifest = {
            **self.made_with(),
            **self.facts(ended, wall_seconds=self.now),
            "clock": "wall",
            "fingerprint": self.fingerprint,
            "digest": self.digest,
            "keep_updates": self.keep_updates,
            "model_digest": journal.model_digest(self.strategy.model),
            "started": self.started_unix,
            "command": self._command,
            "target": self._target,
        }
        return Run(
            updates=self.record.update_frame(),
            evaluations=self.record.evaluation_frame(),
            clients=self.task.label_counts().clear(),  # the sites' data is theirs
            manifest=manifest,
            folder=self.folder,
            model=self.strategy.model,
        )

    # Identity --------------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Of the test data and the initial model."""
        return self.task.digest(self.seed)

    @cached_property
    def fingerprint(self) -> str:
        return checkpoint.hashed(self.made_with() | {"num_clients": None, "seed": self.seed, "digest": self.digest})

    def made_with(self) -> dict[str, Any]:
        """All settings but the seed and when to stop, JSON-ready."""
        return {
            "strategy": {"name": self.strategy.name} | self.strategy.settings(),
            "weather": "real",
            "task": self.task.name,
            "num_clients": len(self.clients),
            "num_parameters": len(self.initial),
            "num_frozen": self.num_frozen,
            "local": asdict(self.task.local),
            "evaluate_every": self.evaluate_every,
            "executor": "flower",
        }

    # Beginning, saving, continuing -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if is_finished(self.folder):
            raise RecordError(f"{self.folder}: holds a finished run; choose another folder")
        if (self.folder / CHECKPOINT).exists() or (self.folder / journal.FOLDER).exists():
            raise RecordError(
                f"{self.folder}: holds an unfinished run; continue it with resume, or choose another folder"
            )
        self._journal = journal.Journal(self.folder / journal.FOLDER)
        self._clock_offset = -time.monotonic()
        self._note(
            "begin", self.initial, strategy={"name": self.strategy.name} | self.strategy.settings(),
            num_trainable=self.num_trainable, seed=self.seed, started=time.time(), fingerprint=self.fingerprint,
        )  # fmt: skip
        self._saved_at = self.now
        self._evaluate()

    def _resume(self) -> None:
        folder = self.folder / journal.FOLDER
        if not folder.is_dir():
            raise RecordError(f"{self.folder}: holds no unfinished run to resume; check the folder's name")
        self._journal = journal.Journal(folder)
        first = self._load() if (self.folder / CHECKPOINT).exists() else 0
        for entry in journal.read(folder, first):
            if entry.header["kind"] == "begin":
                checkpoint.check_same(self, entry.header["fingerprint"])
            if entry.header["kind"] == "dispatch":
                self.random.random()
            self._apply(*entry)
            if entry.header["kind"] in ("begin", "update"):
                self._evaluate_if_due()
        self._clock_offset = max(self.now, time.time() - self.started_unix) - time.monotonic()
        logger.info("continuing at version %d, after %d accepted updates", self.strategy.version, self.accepted)
        for flight in list(self.in_flight.values()):
            outcome = "lost: the server was started again"
            self._note("lost", client=flight.client, dispatch=flight.dispatch, outcome=outcome, blameless=True)
        self._save()

    def _finished_run(self) -> Run:
        run = read_run(self.folder)
        checkpoint.check_same(self, run.manifest["fingerprint"])
        return run

    def _save_if_due(self) -> None:
        assert self._journal is not None
        if self._clock() - self._saved_at >= self._checkpoint_seconds or self._journal.num_bytes > LARGEST_SEGMENT:
            self._save()

    def _save(self) -> None:
        """A checkpoint, after which the journal starts anew."""
        assert self._journal is not None
        state = checkpoint.common_state(self, *_SAVED) | {"segment": self._journal.next_segment()}
        checkpoint.write_tree(self.folder / CHECKPOINT, state)
        if not self.keep_updates:
            self._journal.drop_before(state["segment"])
        self._saved_at = self._clock()

    def _load(self) -> int:
        """Read the checkpoint; the number of the first journal segment after it."""
        state = checkpoint.read_tree(self.folder / CHECKPOINT)
        for flight in checkpoint.restore_common(self, state, *_SAVED):
            self.in_flight[flight["client"]] = OnTheWay(**flight)
        self.benched = {client: (failures, until) for client, (failures, until) in self.benched.items()}
        return state["segment"]
