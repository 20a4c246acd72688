"""The wall-clock engine: the same strategy, with real clients on other machines.

The counterpart of :class:`fedfa.simulation.engine.Simulation`. It reaches the clients through a :class:`Transport`:
requests go out, events come back through one queue and are handled one at a time, in the order of arrival.

Everything that changes the run is an entry in the journal (see :mod:`fedfa.deployment.journal`): it is on disk first,
and then applied. A run that was killed continues where it stopped, and its work in flight is handed out again.
"""

import logging
import math
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

import numpy as np

from fedfa.deployment import journal
from fedfa.deployment.settings import DeploymentSettings
from fedfa.deployment.state import DeploymentState
from fedfa.deployment.transport import Event, Failure, Nodes, TrainRequest, Transport
from fedfa.errors import RecordError, in_a_line, require
from fedfa.files import atomic
from fedfa.learning.task import Task
from fedfa.runs.live import Live
from fedfa.runs.recorder import Outcome
from fedfa.runs.run import Run
from fedfa.runs.stop import BY_ACCURACY, BY_SECONDS, BY_UPDATES, INTERRUPTED, Ending
from fedfa.runs.store import CHECKPOINT, is_finished, read_run, write_run
from fedfa.strategies.base import Strategy

logger = logging.getLogger("fedfa")

STARTED_AGAIN = Outcome("lost", "the server was started again")
LARGEST_SEGMENT = 1 << 30
"""Bytes of journal after which a checkpoint is written, even if the last one is recent."""


def check_strategy(strategy: Strategy) -> None:
    """Raise a ConfigError if the strategy cannot run with real clients."""
    require(
        not strategy.may_recall,
        f"{strategy.name}: cannot call back clients that train elsewhere; use port-non-urgent, which waits for them",
    )


class Deployment(DeploymentState):
    """One run with real clients."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        task: Task,
        transport: Transport,
        settings: DeploymentSettings,
        command: str = "",
        progress: Callable[["Deployment"], None] = lambda run: None,
    ) -> None:
        check_strategy(strategy)
        label = strategy.name or type(strategy).__name__
        super().__init__(strategy=strategy, task=task, settings=settings, label=label)
        self.transport, self._model_of = transport, task
        self._command, self._progress = command, progress
        self._live = Live(self.run_folder, clock="wall")
        self._present: frozenset[int] = frozenset()
        self._short_of_nodes = False
        self._journal: journal.Journal | None = None
        self._clock_offset = 0.0
        self._saved_at = 0.0

    # The loop --------------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Train until the stop; with ``resume``, continue the unfinished run in the folder."""
        resume = self.settings.resume
        if resume and is_finished(self.run_folder):
            return self._finished_run()
        try:
            with np.errstate(over="ignore"):  # a client's absurd numbers are refused, not warned about
                self._resume() if resume else self._begin()
                while not (ended := self._reached()):
                    self._handle_next()
                    self._fill()
                    self.evaluate_if_due()
                    self._progress(self)
                    self._live.tick(self, self._clock())
                    self._save_if_due()
                return self._finish(ended)
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            self._live.end(self, None if stopped else in_a_line(error))
            if stopped and len(self.record.evaluations):
                write_run(self.run_folder, self.so_far(INTERRUPTED, self._command))
            raise
        finally:
            if self._journal is not None:
                self._journal.close()

    def _clock(self) -> float:
        return self._clock_offset + time.monotonic()

    def _patience(self) -> float:
        """How long to wait for events only; a second at most, so that ``fedfa watch`` shows a moving clock."""
        return min(1.0, max(0.0, self._most_seconds - self._clock()))

    def _handle_next(self) -> None:
        try:
            self._handle(self.transport.events.get(timeout=self._patience()))
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
            logger.warning("ignoring an answer to dispatch %d, which is no longer awaited", event.dispatch)
            return
        which: dict[str, Any] = {"client": flight.client, "dispatch": flight.dispatch}
        if isinstance(event, Failure):
            self._note("lost", **which, outcome=str(event.outcome), blameless=event.blameless)
            return
        done = event.trained
        if wrong := self._unusable(done.params):
            self._note("lost", **which, outcome=str(Outcome("refused", wrong)))
            return
        self._note(
            "update", done.params, **which, base_version=flight.base_version,
            num_examples=done.num_examples, num_steps=done.num_steps, loss=done.loss,
        )  # fmt: skip

    def _unusable(self, params: Any) -> str:
        """Why this cannot be written to the journal; the strategy checks its content."""
        if not isinstance(params, np.ndarray) or params.dtype != np.float32 or params.shape != self.initial.shape:
            shape = getattr(params, "shape", type(params).__name__)
            return f"wrong shape {shape}, not {self.initial.shape} of float32"
        return ""

    def _fill(self) -> None:
        """Hand the newest model to idle nodes, drawn uniformly, while there are any."""
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
            self.transport.send(node, self._request(dispatch, client))
        if self.unfilled and not self._short_of_nodes:
            logger.info("waiting for nodes: %d slots are free, but no node is available", self.unfilled)
        self._short_of_nodes = self.unfilled > 0

    def _request(self, dispatch: int, client: int) -> TrainRequest:
        strategy = self.strategy
        epochs = self.task.local.epochs_of(self.seed, client)
        return TrainRequest(dispatch, strategy.version, strategy.model, epochs, strategy.local.prox_mu, self.seed)

    # What changes the state: written down first, and applied in the same way when a run is continued ------------------

    def _note(self, kind: str, params: np.ndarray | None = None, *, durable: bool = True, **facts: Any) -> None:
        assert self._journal is not None
        header = {"kind": kind, "seconds": self._clock(), **facts}
        self._journal.append(header, params, durable)
        self.apply(header, params)

    # End -------------------------------------------------------------------------------------------------------------

    @property
    def _most_seconds(self) -> float:
        return min(self.stop.seconds or math.inf, self.stop.wall_seconds or math.inf)

    def _reached(self) -> Ending | None:
        """Which limit has been met; None while none has."""
        if self.gave_up:
            return self.gave_up
        if self.stop.updates is not None and self.accepted >= self.stop.updates:
            return BY_UPDATES
        if self.stop.accuracy is not None and self.last_score[1] >= self.stop.accuracy:
            return BY_ACCURACY
        return BY_SECONDS if self._clock() >= self._most_seconds else None

    def _finish(self, ended: Ending) -> Run:
        self.now = min(self._clock(), self._most_seconds)
        if self.record.evaluation_frame()["updates"][-1] != self.accepted:
            self.evaluate()
        run = self.so_far(ended, self._command)
        assert self._journal is not None
        with atomic(self.run_folder / "model.npz") as file:
            tensors = self._model_of.state_dict(self.strategy.model, self.seed)
            np.savez(file, allow_pickle=False, **{name: tensor.numpy() for name, tensor in tensors.items()})
        self._journal.close()
        write_run(self.run_folder, run)
        if not self.settings.keep_updates:
            for segment in journal.segments(self._journal.folder).values():
                segment.unlink()
            self._journal.folder.rmdir()
        return run

    # Beginning, saving, continuing -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if is_finished(self.run_folder):
            raise RecordError(f"{self.run_folder}: holds a finished run; choose another folder")
        if (self.run_folder / CHECKPOINT).exists() or (self.run_folder / journal.FOLDER).exists():
            raise RecordError(
                f"{self.run_folder}: holds an unfinished run; continue it with resume, or choose another folder"
            )
        self._journal = journal.Journal(self.run_folder / journal.FOLDER)
        self._clock_offset = -time.monotonic()
        self._note(
            "begin", self.initial, strategy={"name": self.strategy.name} | self.strategy.settings(),
            num_trainable=self.num_trainable, seed=self.seed, started=time.time(), fingerprint=self.fingerprint,
        )  # fmt: skip
        self._saved_at = self.now
        self.evaluate()

    def _resume(self) -> None:
        folder = self.run_folder / journal.FOLDER
        if not folder.is_dir():
            raise RecordError(f"{self.run_folder}: holds no unfinished run to resume; check the folder's name")
        self._journal = journal.Journal(folder)
        for entry in journal.read(folder, self.load()):
            if entry.header["kind"] == "begin":
                self.check_same(entry.header["fingerprint"])
            if entry.header["kind"] == "dispatch":
                self.random.random()
            self.apply(*entry)
            if entry.header["kind"] in ("begin", "update"):
                self.evaluate_if_due()
        self._clock_offset = max(self.now, time.time() - self.started_unix) - time.monotonic()
        logger.info("continuing at version %d, after %d accepted updates", self.strategy.version, self.accepted)
        for flight in list(self.in_flight.values()):
            self._note(
                "lost", client=flight.client, dispatch=flight.dispatch, outcome=str(STARTED_AGAIN), blameless=True
            )
        self._start_segment()

    def _finished_run(self) -> Run:
        run = read_run(self.run_folder)
        self.check_same(run.manifest["fingerprint"])
        return run

    def _save_if_due(self) -> None:
        assert self._journal is not None
        if (
            self._clock() - self._saved_at >= self.settings.checkpoint_seconds
            or self._journal.num_bytes > LARGEST_SEGMENT
        ):
            self._start_segment()

    def _start_segment(self) -> None:
        """Write a checkpoint and start a new journal."""
        assert self._journal is not None
        segment = self._journal.next_segment()
        self.save(segment)
        if not self.settings.keep_updates:
            self._journal.drop_before(segment)
        self._saved_at = self._clock()
