"""fedfa's server, or with ``by-hand`` the asynchronous loop that one would write with Flower's own calls.

Both begin with the same model: Flower moves equal pieces of an array only once, so a model of zeros travels for less.
"""

import json
import time
from collections import deque
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from task import task

from fedfa import Task
from fedfa.deployment.flower import serve
from fedfa.deployment.settings import settings_of

app = ServerApp()
POLL_SECONDS = 0.25
Exchange = tuple[int, float, float]
"""Number of a dispatch; when it was sent and when it was answered, in Unix time."""


def by_hand(grid: Grid, model: np.ndarray, num_nodes: int, updates: int) -> list[Exchange]:
    """The mean of the last two models, and a new task for a node as soon as it has answered."""
    while len(nodes := list(grid.get_node_ids())) < num_nodes:
        time.sleep(0.2)
    window: deque[np.ndarray] = deque(maxlen=2)
    out: dict[str, tuple[int, int, float]] = {}
    done: list[Exchange] = []

    def send(node: int) -> None:
        dispatch, sent = len(done) + len(out), time.time()
        config = {"dispatch": dispatch, "base-version": 0, "epochs": 1, "prox-mu": 0.0, "seed": 0}
        content = RecordDict({"arrays": ArrayRecord({"flat": Array(model)}), "config": ConfigRecord(config)})
        (ticket,) = grid.push_messages([Message(content, node, MessageType.TRAIN)])
        out[ticket] = node, dispatch, sent

    for node in nodes:
        send(node)
    while len(done) < updates:
        for reply in grid.pull_messages(list(out)):
            node, dispatch, sent = out.pop(reply.metadata.reply_to_message_id)
            window.append(reply.content["arrays"]["flat"].numpy())
            model = np.mean(window, axis=0)
            done.append((dispatch, sent, time.time()))
            send(node)
        time.sleep(POLL_SECONDS)
    return done


def by_fedfa(grid: Grid, context: Context, made: Task) -> list[Exchange]:
    run = serve(grid, made, settings_of(context.run_config))
    start = run.manifest["started"]
    rows = run.updates.select("dispatch", "dispatched_seconds", "seconds").iter_rows()
    return [(dispatch, start + sent, start + arrived) for dispatch, sent, arrived in rows]


@app.main()
def _(grid: Grid, context: Context) -> None:
    config = context.run_config
    made = task(int(config["width"]), bool(config["zeros"]))
    if config["by-hand"]:
        done = by_hand(grid, made.initial(0).vector, int(config["nodes"]), int(config["stop-updates"]))
    else:
        done = by_fedfa(grid, context, made)
    Path(f"{config['out']}.exchanges").write_text(json.dumps(done))
