"""fedfa's server, or with ``by-hand`` the asynchronous loop that one would write with Flower's own calls."""

import json
import time
from collections import deque
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from task import task

from fedfa.apps import settings_of
from fedfa.flower.server import serve

app = ServerApp()
POLL_SECONDS = 0.25


def by_hand(grid: Grid, width: int, num_nodes: int, updates: int) -> list[float]:
    """When each update came: the mean of the last two models, a new task for a node as soon as it has answered."""
    while len(nodes := list(grid.get_node_ids())) < num_nodes:
        time.sleep(0.2)
    model = np.zeros(width * width + width, np.float32)
    window: deque[np.ndarray] = deque(maxlen=2)
    out: dict[str, int] = {}
    arrived: list[float] = []

    def send(node: int) -> None:
        config = {"dispatch": len(arrived), "base-version": 0, "epochs": 1, "prox-mu": 0.0, "seed": 0}
        content = RecordDict({"arrays": ArrayRecord({"flat": Array(model)}), "config": ConfigRecord(config)})
        (ticket,) = grid.push_messages([Message(content, node, MessageType.TRAIN)])
        out[ticket] = node

    for node in nodes:
        send(node)
    while len(arrived) < updates:
        for reply in grid.pull_messages(list(out)):
            node = out.pop(reply.metadata.reply_to_message_id)
            window.append(reply.content["arrays"]["flat"].numpy())
            model = np.mean(window, axis=0)
            arrived.append(time.time())
            send(node)
        time.sleep(POLL_SECONDS)
    return arrived


@app.main()
def _(grid: Grid, context: Context) -> None:
    config = context.run_config
    width, folder = int(config["width"]), Path(str(config["out"]))
    if config["by-hand"]:
        arrived = by_hand(grid, width, int(config["nodes"]), int(config["stop-updates"]))
    else:
        arrived = serve(grid, task(width), settings_of(config)).updates["seconds"].to_list()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "arrived.json").write_text(json.dumps(arrived))
