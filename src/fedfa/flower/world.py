"""Flower as the world of a deployment: one thread per message that is out, and one that looks for nodes.

``Grid.pull_messages`` blocks while a reply is still being uploaded, so a single loop over all messages would let one
slow uplink delay everyone. With a thread each, nobody waits for anybody; the answers meet in one queue.
"""

import logging
import threading
import time
from queue import SimpleQueue

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedfa.deployment import Answer, Event, Failure, Nodes, Order
from fedfa.errors import in_a_line
from fedfa.flower.wire import Server, WireError

logger = logging.getLogger("fedfa")

POLL_SECONDS = 0.25
JOURNEYS = 2.0
"""A poll that finds an answer half uploaded costs 1 s, then 2 s more and so on, for so long Flower waits before it asks
for the rest. So the pause between polls is at least so many times what the model took on its way out."""
SHARE_OF_THE_WAIT = 0.02
"""And at least this share of the time waited: every poll costs the SuperLink processor time."""
MOST_POLLS_PER_SECOND = 100
LONGEST_PAUSE = 10.0
GRACE_SECONDS = 60.0
"""After its time to live a message is given up even if Flower has not said so."""

_REASONS = {
    1: "failed: the client app could not be loaded",
    2: "failed: the client app raised",
    3: "lost: no answer in time",
    4: "lost: the answer is gone",
    5: "lost: the node is gone",
    7: "failed: the node does not trust the app",
    8: "failed: the client's process died",
}


class FlowerWorld:
    """Sends orders through a Grid, and turns replies, errors and nodes into events."""

    def __init__(self, grid: Grid, wire: Server, ttl_seconds: float) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._grid, self._wire, self._ttl = grid, wire, ttl_seconds
        self._closed = threading.Event()
        self._out = 0
        self._sending = threading.Lock()
        self._thread(self._look_for_nodes)

    def send(self, node: int, order: Order) -> None:
        self._thread(self._collect, node, order)

    def close(self) -> None:
        self._closed.set()

    def _thread(self, work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # pyright: ignore[reportArgumentType]

    def _look_for_nodes(self) -> None:
        known: frozenset[int] = frozenset()
        while not self._closed.wait(1.0 if known else 0.2):
            try:
                present = frozenset(self._grid.get_node_ids())
            except Exception as error:  # the SuperLink may be restarting
                logger.warning("the SuperLink does not answer (%s); trying again", in_a_line(error))
                self._closed.wait(LONGEST_PAUSE)
                continue
            if present != known:
                known = present
                self.events.put(Nodes(present))

    def _collect(self, node: int, order: Order) -> None:
        """Whatever happens, exactly one event follows: a collector that died silently would hold its slot forever."""
        self._out += 1
        try:
            self.events.put(self._event(self._exchange(node, order), order))
        except WireError as error:
            self.events.put(Failure(order.dispatch, f"refused: {error}"))
        except Exception as error:
            self.events.put(Failure(order.dispatch, f"lost: {in_a_line(error)}"))
        finally:
            self._out -= 1

    def _exchange(self, node: int, order: Order) -> Message | None:
        """Push, then pull until the reply is there; None where it never comes.

        One pushes at a time: all pushes share one way, and side by side they would all arrive as late as the last.
        """
        with self._sending:
            began = time.monotonic()
            message = Message(self._wire.order(order), node, MessageType.TRAIN, ttl=self._ttl)
            (ticket,) = self._grid.push_messages([message]) or (None,)
            del message  # the model in it is no longer needed
        if ticket is None:
            raise WireError("the SuperLink did not take the message")
        pause, sent = 0.0, time.monotonic()
        journey = sent - began
        while (waited := time.monotonic() - sent) < self._ttl + GRACE_SECONDS:
            patience = min(LONGEST_PAUSE, max(JOURNEYS * journey, SHARE_OF_THE_WAIT * waited))
            if self._closed.wait(max(POLL_SECONDS, patience, self._out / MOST_POLLS_PER_SECOND, pause)):
                break
            try:
                for reply in self._grid.pull_messages([ticket]):
                    return reply
                pause = 0.0
            except Exception as error:  # the SuperLink may be restarting
                logger.warning("an answer could not be fetched (%s); trying again", in_a_line(error))
                pause = min(LONGEST_PAUSE, 2 * pause + 1)
        return None

    def _event(self, reply: Message | None, order: Order) -> Event:
        if reply is None:
            return Failure(order.dispatch, "lost: no answer in time")
        if reply.has_error():
            code, reason = reply.error.code, (reply.error.reason or "").strip()
            said = f" ({' '.join(reason.split())[:200]})" if reason and code in (1, 2) else ""
            return Failure(order.dispatch, _REASONS.get(code, f"failed: code {code}") + said)
        return Answer(order.dispatch, self._wire.answer(reply.content, order))
