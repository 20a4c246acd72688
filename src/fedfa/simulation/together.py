"""Several simulations in one process: each goes on until it needs a result that is not there.

Then all that is pending is trained together. What a client computes is fixed at its dispatch, so each run has the same
events, and the same records, as alone.
"""

import gc
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedfa.learning.device import Device
from fedfa.runs.run import Run
from fedfa.simulation.engine import Steps, Waiting

MOST_TOGETHER = 16
"""Runs at a time whose clients are trained together."""

Begin = Callable[[], Steps]


def together(following: Callable[[], Begin | None]) -> Iterator[Run]:
    """Make runs; yields each as it ends.

    ``following`` is asked for the next one whenever there is room for it, and may answer None, for none at present.
    Several go on at a time as long as their executors share. When one is interrupted or fails, and when the iterator is
    closed, the others are saved and end.
    """
    underway: deque[tuple[Steps, Waiting]] = deque()
    try:
        while True:
            while _room(underway) and (begin := following()) is not None:
                if (run := _go_on(begin(), underway)) is not None:
                    yield run
            if not underway:
                return
            moved = False
            for _ in range(len(underway)):
                steps, waiting = underway.popleft()
                if not waiting.over:
                    underway.append((steps, waiting))
                    continue
                moved = True
                if (run := _go_on(steps, underway)) is not None:
                    yield run
            if not moved:
                underway.rotate()
                underway[0][1].executor.advance()
    finally:
        for steps, _ in underway:
            _save(steps)


def alone(steps: Steps) -> Run:
    """Make one run; its executor computes each result when it is asked for."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@contextmanager
def undisturbed(threads: int, device: Device) -> Iterator[None]:
    """Around runs: so many torch threads, the precision of this device, and few garbage collections."""
    thresholds, before = gc.get_threshold(), torch.get_num_threads()
    torch.set_num_threads(threads)
    gc.freeze()  # objects that exist now stay: garbage collections need not scan them repeatedly
    gc.set_threshold(max(20_000, thresholds[0]), *thresholds[1:])
    try:
        with np.errstate(over="ignore"), device.prepared():  # a client's absurd numbers are refused, not warned about
            yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        torch.set_num_threads(before)


def _room(underway: Collection[tuple[Steps, Waiting]]) -> bool:
    most = MOST_TOGETHER if all(waiting.executor.shares for _, waiting in underway) else 1
    return len(underway) < most


def _go_on(steps: Steps, underway: deque[tuple[Steps, Waiting]]) -> Run | None:
    """Let a run go on until it waits; the run, if it has ended."""
    try:
        underway.append((steps, next(steps)))
    except StopIteration as end:
        return end.value
    return None


def _save(steps: Steps) -> None:
    try:
        steps.throw(KeyboardInterrupt)
    except (KeyboardInterrupt, StopIteration):
        pass
