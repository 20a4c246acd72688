"""The Flower transport, with a Grid that fails on command instead of daemons."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedfa.deployment.flower import transport
from fedfa.deployment.flower.wire import WireError
from fedfa.deployment.transport import Answer, Event, Failure, Nodes, TrainRequest
from fedfa.executors.base import Trained
from fedfa.runs.recorder import Outcome

ORDER = TrainRequest(7, 3, np.zeros(2, np.float32), 1, 0.0, 0)
TRAINED = Trained(np.ones(2, np.float32), 3, 4.0, 0.5)


class Wire:
    """Passes content on as it is."""

    def order(self, order: TrainRequest) -> Any:
        return order

    def answer(self, content: Any, order: TrainRequest) -> Trained:
        if isinstance(content, Exception):
            raise content
        return content


class FakeGrid:
    """Answers a pushed message with what ``reply`` says after so many failed attempts to push and to pull."""

    def __init__(self, reply: Any, unsent: int = 0, unfetched: int = 0, ticket: str = "ticket") -> None:
        self.reply, self.unsent, self.unfetched, self.ticket = reply, unsent, unfetched, ticket
        self.pushed: list[Any] = []
        self.look: Callable[[], list[int]] = lambda: [5]

    def get_node_ids(self) -> list[int]:
        return self.look()

    def push_messages(self, messages: list[Any]) -> list[str]:
        self.pushed += messages
        if len(self.pushed) <= self.unsent:
            raise ConnectionError("on purpose")
        return [self.ticket]

    def pull_messages(self, tickets: list[str]) -> list[Any]:
        assert tickets == ["ticket"]
        self.unfetched -= 1
        if self.unfetched >= 0:
            raise ConnectionError("on purpose")
        return [] if self.reply is None else [self.reply]


def content(what: Any) -> Any:
    return SimpleNamespace(has_error=lambda: False, content=what)


def error(code: int, reason: str = "") -> Any:
    return SimpleNamespace(has_error=lambda: True, error=SimpleNamespace(code=code, reason=reason))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_SECONDS", "LONGEST_PAUSE", "GRACE_SECONDS"):
        monkeypatch.setattr(transport, name, 0.01)
    monkeypatch.setattr(transport, "AGAIN_AFTER", (0.01, 0.01))
    monkeypatch.setattr(transport, "Message", lambda made, node, kind, ttl: SimpleNamespace(content=made, node=node))


def event(
    grid: FakeGrid, ttl: float = 100.0, after: Callable[[transport.FlowerTransport], object] = lambda _: None
) -> Event:
    """The event that an order to node 5 leads to."""
    made = transport.FlowerTransport(grid, Wire(), ttl)  # pyright: ignore[reportArgumentType]
    try:
        assert made.events.get(timeout=5) == Nodes(frozenset({5}))
        after(made)
        made.send(5, ORDER)
        return made.events.get(timeout=5)
    finally:
        made.close()


def test_an_answer_arrives_although_the_superlink_fails_sometimes() -> None:
    grid = FakeGrid(content(TRAINED), unsent=2, unfetched=3)
    assert event(grid) == Answer(7, TRAINED)
    assert len({id(message) for message in grid.pushed}) == 1, "the very same message, or clients would train twice"


def test_an_order_that_cannot_be_sent_is_not_the_nodes_fault() -> None:
    lost = event(FakeGrid(content(TRAINED), unsent=3))
    assert lost == Failure(
        7, Outcome("lost", "the order could not be sent (ConnectionError: on purpose)"), blameless=True
    )


@pytest.mark.parametrize(
    ("grid", "ttl", "outcome"),
    [
        (FakeGrid(None, ticket=""), 9.0, "lost: the SuperLink did not take the order"),
        (FakeGrid(None), 0.1, "lost: no answer in time"),
        (FakeGrid(error(3, "expired")), 0.5, "lost: no answer in time"),
        (FakeGrid(error(3, "the upload broke off")), 9.0, "lost: the answer is gone"),
        (FakeGrid(error(5)), 9.0, "lost: the node is gone"),
        (FakeGrid(error(2, "a\n  b")), 9.0, "failed: the client app raised (a b)"),
        (FakeGrid(error(8)), 9.0, "failed: the client's process died"),
        (FakeGrid(error(77)), 9.0, "failed: code 77"),
        (FakeGrid(content(WireError("wrong shape"))), 9.0, "refused: wrong shape"),
        (FakeGrid(content(KeyError("x"))), 9.0, "lost: KeyError: 'x'"),
    ],
)
def test_each_failure_has_its_outcome(grid: FakeGrid, ttl: float, outcome: str) -> None:
    assert event(grid, ttl) == Failure(7, Outcome.parse(outcome))


def test_what_is_lost_while_the_superlink_is_away_is_not_blamed_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "AWAY_SECONDS", 0.5)

    def go_away(made: transport.FlowerTransport) -> None:
        def look() -> list[int]:
            time.sleep(3.0)
            return [5]

        made._grid.look = look  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(1.0)

    assert event(FakeGrid(error(5)), after=go_away) == Failure(7, Outcome("lost", "the node is gone"), blameless=True)


# When it pushes and when it polls -------------------------------------------------------------------------------------


class SilentGrid:
    """Takes every message, in so many seconds, and answers none."""

    def __init__(self, push_seconds: float = 0.0) -> None:
        self.push_seconds = push_seconds
        self.pushing = self.most_pushing = self.polls = 0

    def get_node_ids(self) -> list[int]:
        return []

    def push_messages(self, messages: list[Any]) -> list[str]:
        self.pushing += 1
        self.most_pushing = max(self.pushing, self.most_pushing)
        time.sleep(self.push_seconds)
        self.pushing -= 1
        return ["ticket" for _ in messages]

    def pull_messages(self, tickets: list[str]) -> list[Any]:
        self.polls += 1
        return []


def wait_without_an_answer(grid: Any, monkeypatch: pytest.MonkeyPatch, messages: int = 1) -> None:
    """Send orders that expire after 0.8 s without an answer."""
    monkeypatch.setattr(transport, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(transport, "MOST_POLLS_PER_SECOND", 10_000)
    monkeypatch.setattr(transport, "LONGEST_PAUSE", 10.0)
    monkeypatch.setattr(transport, "GRACE_SECONDS", 0.2)
    wire: Any = Wire()
    here = transport.FlowerTransport(grid, wire, ttl_seconds=0.8)
    for node in range(messages):
        here.send(node, ORDER)
    for _ in range(messages):
        assert here.events.get(timeout=10) == Failure(7, Outcome("lost", "no answer in time"))
    here.close()


def test_polls_become_rarer_while_an_answer_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SHARE_OF_THE_WAIT", 0.5)
    grid = SilentGrid()
    wait_without_an_answer(grid, monkeypatch)
    assert 5 < grid.polls < 40  # with equal pauses it would be hundreds


def test_pushes_follow_each_other_and_polls_leave_time_for_an_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = SilentGrid(push_seconds=0.1)
    wait_without_an_answer(grid, monkeypatch, messages=3)
    assert grid.most_pushing == 1
    assert 3 <= grid.polls <= 15  # one each 0.2 s


class SlowGrid(SilentGrid):
    """Answers 0.4 s after each push."""

    def push_messages(self, messages: list[Any]) -> list[str]:
        self.ready, self.waited = time.monotonic() + 0.4, []
        return super().push_messages(messages)

    def pull_messages(self, tickets: list[str]) -> Any:
        self.waited.append(time.monotonic() - self.ready + 0.4)
        done = time.monotonic() >= self.ready
        return [SimpleNamespace(has_error=lambda: False, content=TRAINED)] if done else []


def test_the_first_poll_waits_for_the_time_of_the_quickest_answer() -> None:
    wire: Any = Wire()
    grid: Any = SlowGrid()
    here = transport.FlowerTransport(grid, wire, ttl_seconds=60.0)
    first_polls = []
    for _ in range(2):
        here.send(0, ORDER)
        assert here.events.get(timeout=10) == Answer(7, TRAINED)
        first_polls.append(grid.waited[0])
    here.close()
    assert first_polls[0] < 0.15 < first_polls[1]
