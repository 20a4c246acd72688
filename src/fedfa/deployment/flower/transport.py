"""Flower as the transport of a deployment: one thread per message in flight, and one that looks for nodes.

``Grid.pull_messages`` blocks while a reply is still being uploaded, so in a single loop over all messages one slow
uplink would delay all others. With a thread for each message none waits for another; the answers go to one queue.

While the SuperLink is away, the Grid's calls block: Flower tries again until it is back. An exception from them comes
from a SuperLink that answers, but cannot carry out the request now.
"""

import logging
import math
import threading
import time
from queue import SimpleQueue
from typing import NamedTuple

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedfa.deployment.flower.wire import Server, WireError
from fedfa.deployment.transport import Answer, Event, Failure, Nodes, TrainRequest
from fedfa.errors import in_a_line
from fedfa.runs.recorder import Outcome

logger = logging.getLogger("fedfa")

POLL_SECONDS = 0.25
JOURNEYS = 2.0
"""The pause between polls is at least this many times the time in which the model was sent. A poll that finds a half
uploaded answer is expensive: Flower waits 1 s, then 2 s more and so on, before it asks for the rest."""
SHARE_OF_THE_WAIT = 0.02
"""The pause is also at least this share of the time waited: every poll costs the SuperLink processor time."""
HEAD_START, LONGEST_HEAD_START = 0.5, 3.0
"""The first poll comes after this share of the quickest answer's time, or after a SuperNode's own pause."""
MOST_POLLS_PER_SECOND = 100
LONGEST_PAUSE = 10.0
GRACE_SECONDS = 60.0
"""After its time to live a message is given up even if Flower has not said so."""
AGAIN_AFTER = (1.0, 5.0, 10.0, 20.0)
"""Pauses before a message that could not be sent is sent again."""
AWAY_SECONDS = 20.0
"""Seconds without a list of nodes after which the SuperLink counts as away."""
RETURN_SECONDS = 60.0
"""Seconds after its return in which nodes are not blamed for losses: they may not have reconnected yet."""

EXPIRED, ANSWER_GONE = 3, 4
_OUTCOMES = {
    1: Outcome("failed", "the client app could not be loaded"),
    2: Outcome("failed", "the client app raised"),
    EXPIRED: Outcome("lost", "no answer in time"),
    ANSWER_GONE: Outcome("lost", "the answer is gone"),
    5: Outcome("lost", "the node is gone"),
    7: Outcome("failed", "the node does not trust the app"),
    8: Outcome("failed", "the client's process died"),
}


class Sent(NamedTuple):
    """A message in flight."""

    ticket: str
    """Empty if the SuperLink did not accept it."""
    made: float
    journey: float
    """Seconds it took on its way to the SuperLink."""


class FlowerTransport:
    """Sends orders through a Grid, and turns replies, errors and nodes into events."""

    def __init__(self, grid: Grid, wire: Server, ttl_seconds: float) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._grid, self._wire, self._ttl = grid, wire, ttl_seconds
        self._closed = threading.Event()
        self._out = 0
        self._sending = threading.Lock()
        self._quickest = 0.0
        self._heard = time.monotonic()
        self._doubtful_until = -math.inf
        self._thread(self._look_for_nodes)

    def send(self, node: int, request: TrainRequest) -> None:
        self._thread(self._collect, node, request)

    def close(self) -> None:
        self._closed.set()

    def _thread(self, work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # pyright: ignore[reportArgumentType]

    def _look_for_nodes(self) -> None:
        known: frozenset[int] = frozenset()
        while not self._closed.wait(1.0 if known else 0.2):
            try:
                present = frozenset(self._grid.get_node_ids())
            except Exception as error:
                logger.warning("the SuperLink does not list its nodes (%s)", in_a_line(error))
                self._closed.wait(LONGEST_PAUSE)
                continue
            now = time.monotonic()
            if now - self._heard > AWAY_SECONDS:
                logger.warning("the SuperLink was away for %.0f s; continuing", now - self._heard)
                self._doubtful_until = now + RETURN_SECONDS
            self._heard = now
            if present != known:
                known = present
                self.events.put(Nodes(present))

    def _collect(self, node: int, request: TrainRequest) -> None:
        """Exactly one event follows in every case: a collector that died silently would keep its slot forever."""
        self._out += 1
        try:
            self.events.put(self._exchange(node, request))
        except WireError as error:
            self.events.put(Failure(request.dispatch, Outcome("refused", str(error))))
        except Exception as error:
            self.events.put(Failure(request.dispatch, Outcome("lost", in_a_line(error))))
        finally:
            self._out -= 1

    def _exchange(self, node: int, request: TrainRequest) -> Event:
        """Push, then pull until the reply is there or will never come."""
        try:
            sent = self._push(node, request)
        except Exception as error:
            outcome = Outcome("lost", f"the order could not be sent ({in_a_line(error)})")
            return Failure(request.dispatch, outcome, blameless=True)
        if not sent.ticket:
            return Failure(request.dispatch, Outcome("lost", "the SuperLink did not take the order"))
        reply = self._pull(sent)
        return self._event(reply, request, time.monotonic() - sent.made)

    def _push(self, node: int, request: TrainRequest) -> Sent:
        """Send the order; if that fails, send the same message again, which the SuperLink recognises by its id.

        Only one thread pushes at a time, and makes its message only then. All pushes share one connection: in
        parallel they would all arrive as late as the last.
        """
        message, made, pauses = None, 0.0, iter(AGAIN_AFTER)
        while True:
            with self._sending:
                began = time.monotonic()
                try:
                    if message is None:
                        message = Message(self._wire.order(request), node, MessageType.TRAIN, ttl=self._ttl)
                        made = began
                    (ticket,) = self._grid.push_messages([message]) or ("",)
                    return Sent(ticket, made, time.monotonic() - began)
                except Exception as error:
                    failed = error
            pause = next(pauses, None)
            if pause is None or self._closed.wait(pause):
                raise failed
            logger.warning("an order could not be sent (%s); trying again", in_a_line(failed))

    def _pull(self, sent: Sent) -> Message | None:
        """The reply, when it is there; None if it never comes."""
        pause, began = min(LONGEST_HEAD_START, HEAD_START * self._quickest), time.monotonic()
        while (now := time.monotonic()) < sent.made + self._ttl + GRACE_SECONDS:
            patience = min(LONGEST_PAUSE, max(JOURNEYS * sent.journey, SHARE_OF_THE_WAIT * (now - began)))
            if self._closed.wait(max(POLL_SECONDS, patience, self._out / MOST_POLLS_PER_SECOND, pause)):
                break
            try:
                for reply in self._grid.pull_messages([sent.ticket]):
                    if not reply.has_error():
                        self._quickest = min(self._quickest or math.inf, time.monotonic() - began)
                    return reply
                pause = 0.0
            except Exception as error:
                logger.warning("an answer could not be fetched (%s); trying again", in_a_line(error))
                pause = min(LONGEST_PAUSE, 2 * pause + 1)
        return None

    def _event(self, reply: Message | None, request: TrainRequest, seconds: float) -> Event:
        if reply is not None and not reply.has_error():
            return Answer(request.dispatch, self._wire.answer(reply.content, request))
        code, reason = (EXPIRED, "") if reply is None else (reply.error.code, (reply.error.reason or "").strip())
        if code == EXPIRED and seconds + 1 < self._ttl:  # Flower says the same where an upload broke off
            code = ANSWER_GONE
        said = f" ({' '.join(reason.split())[:200]})" if reason and code in (1, 2) else ""
        kind, why = _OUTCOMES.get(code, Outcome("failed", f"code {code}"))
        blameless = kind == "lost" and self._superlink_was_away()
        return Failure(request.dispatch, Outcome(kind, why + said), blameless)

    def _superlink_was_away(self) -> bool:
        now = time.monotonic()
        return now - self._heard > AWAY_SECONDS or now < self._doubtful_until
