"""Several simulations in one process: each goes on until it needs a result that is not there.

Then all that is pending is trained together. What a client computes is fixed at its dispatch, so each run has the same
events, and the same records, as alone.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedfa.runs.run import Run
from fedfa.simulation.engine import Steps, Waiting

Begin = Callable[[], Steps]


def together(runs: Iterable[Begin], most: int) -> Iterator[tuple[int, Run]]:
    """Make these runs, so many at a time; yields each one's number and result as it ends.

    When one is interrupted or fails, and when the iterator is closed, the others are saved and end.
    """
    waiting, underway = enumerate(runs), dict[int, tuple[Steps, Waiting]]()
    turn = 0
    try:
        while True:
            while len(underway) < most and (following := next(waiting, None)) is not None:
                number, begin = following
                if (run := _go_on(underway, number, begin())) is not None:
                    yield number, run
            if not underway:
                return
            able = [number for number, (_, one) in underway.items() if one.over]
            for number in able:
                if (run := _go_on(underway, number, underway.pop(number)[0])) is not None:
                    yield number, run
            if not able:
                turn += 1
                _, blocked = list(underway.values())[turn % len(underway)]
                blocked.executor.meanwhile()
    finally:
        for steps, _ in underway.values():
            _save(steps)


def alone(steps: Steps) -> Run:
    """Make one run; its executor computes each result when it is asked for."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@contextmanager
def undisturbed(threads: int) -> Iterator[None]:
    """Around runs: so many torch threads, and few garbage collections."""
    thresholds, before = gc.get_threshold(), torch.get_num_threads()
    torch.set_num_threads(threads)
    gc.freeze()  # objects that exist now stay: garbage collections need not scan them repeatedly
    gc.set_threshold(max(20_000, thresholds[0]), *thresholds[1:])
    try:
        with np.errstate(over="ignore"):  # a client's absurd numbers are refused, not warned about
            yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        torch.set_num_threads(before)


def _go_on(underway: dict[int, tuple[Steps, Waiting]], number: int, steps: Steps) -> Run | None:
    """Let a run go on until it waits again; the run, if it has ended."""
    try:
        underway[number] = steps, next(steps)
    except StopIteration as end:
        return end.value
    return None


def _save(steps: Steps) -> None:
    try:
        steps.throw(KeyboardInterrupt)
    except (KeyboardInterrupt, StopIteration):
        pass
