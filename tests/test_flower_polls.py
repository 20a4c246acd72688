"""When the server pushes and when it polls, with a Grid that is none."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict  # noqa: TID251

from fedfa.deployment import Answer, Failure, Order
from fedfa.flower import world

ORDER = Order(5, 0, np.zeros(1, np.float32), 1, 0.0, 0)


class SilentGrid:
    """Takes every message, in so many seconds, and answers none."""

    def __init__(self, push_seconds: float = 0.0) -> None:
        self.push_seconds = push_seconds
        self.pushing = self.most_pushing = self.polls = 0

    def get_node_ids(self) -> list[int]:
        return []

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.pushing += 1
        self.most_pushing = max(self.pushing, self.most_pushing)
        time.sleep(self.push_seconds)
        self.pushing -= 1
        return ["ticket" for _ in messages]

    def pull_messages(self, tickets: list[str]) -> list[Message]:
        self.polls += 1
        return []


def wait_in_vain(grid: Any, monkeypatch: pytest.MonkeyPatch, messages: int = 1) -> None:
    """Send orders that live for a second."""
    monkeypatch.setattr(world, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(world, "MOST_POLLS_PER_SECOND", 10_000)
    monkeypatch.setattr(world, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(world, "Message", lambda content, *_, **__: SimpleNamespace(content=content))  # needs no run
    wire: Any = SimpleNamespace(order=lambda order: RecordDict())
    here = world.FlowerWorld(grid, wire, ttl_seconds=0.8)
    for node in range(messages):
        here.send(node, ORDER)
    for _ in range(messages):
        assert here.events.get(timeout=10) == Failure(5, "lost: no answer in time")
    here.close()


def test_the_longer_an_answer_takes_the_fewer_the_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "SHARE_OF_THE_WAIT", 0.5)
    grid = SilentGrid()
    wait_in_vain(grid, monkeypatch)
    assert 5 < grid.polls < 40  # at an even pace it would be hundreds


def test_pushes_do_not_share_the_way_and_polls_leave_time_for_an_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = SilentGrid(push_seconds=0.1)
    wait_in_vain(grid, monkeypatch, messages=3)
    assert grid.most_pushing == 1
    assert 3 <= grid.polls <= 15  # one each 0.2 s


class SlowGrid(SilentGrid):
    """Answers 0.4 s after each push."""

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.ready, self.waited = time.monotonic() + 0.4, []
        return super().push_messages(messages)

    def pull_messages(self, tickets: list[str]) -> Any:
        self.waited.append(time.monotonic() - self.ready + 0.4)
        done = time.monotonic() >= self.ready
        return [SimpleNamespace(has_error=lambda: False, content=None)] if done else []


def test_nobody_asks_long_before_the_quickest_answer_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(world, "Message", lambda content, *_, **__: SimpleNamespace(content=content))
    wire: Any = SimpleNamespace(order=lambda order: RecordDict(), answer=lambda content, order: "trained")
    grid: Any = SlowGrid()
    here = world.FlowerWorld(grid, wire, ttl_seconds=60.0)
    first_polls = []
    for _ in range(2):
        here.send(0, ORDER)
        assert here.events.get(timeout=10) == Answer(5, "trained")  # pyright: ignore[reportArgumentType]
        first_polls.append(grid.waited[0])
    here.close()
    assert first_polls[0] < 0.15 < first_polls[1]
