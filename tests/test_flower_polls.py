"""Collecting answers, with a Grid that is none."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict  # noqa: TID251

from fedfa.deployment import Failure, Order
from fedfa.flower import world


class SlowGrid:
    """Takes every message and answers none."""

    def __init__(self) -> None:
        self.polls = 0

    def get_node_ids(self) -> list[int]:
        return []

    def push_messages(self, messages: list[Message]) -> list[str]:
        return ["ticket" for _ in messages]

    def pull_messages(self, tickets: list[str]) -> list[Message]:
        assert tickets == ["ticket"]
        self.polls += 1
        return []


def test_the_longer_an_answer_takes_the_fewer_the_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(world, "SHARE_OF_THE_WAIT", 0.5)
    monkeypatch.setattr(world, "MOST_POLLS_PER_SECOND", 10_000)
    monkeypatch.setattr(world, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(world, "Message", lambda content, *_, **__: SimpleNamespace(content=content))  # needs no run
    grid: Any = SlowGrid()
    wire: Any = SimpleNamespace(order=lambda order: RecordDict())
    here = world.FlowerWorld(grid, wire, ttl_seconds=0.8)
    here.send(1, Order(5, 0, np.zeros(1, np.float32), 1, 0.0, 0))
    assert here.events.get(timeout=10) == Failure(5, "lost: no answer in time")
    here.close()
    assert 5 < grid.polls < 40  # 1,000 at an even pace
