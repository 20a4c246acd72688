"""``fault`` in a node's config says how it fails: one word, or one for each order in turn, the last from then on.

After a resume it is the last at once. ``fault-until`` says up to which dispatch. Into the file ``trace`` it writes
when it was done with which dispatch.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from task import model
from torch import nn

from fedfa.deployment.flower import Trained, client_app
from fedfa.deployment.transport import TrainRequest


def train(module: nn.Module, order: TrainRequest, node: dict) -> Trained:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * (order.dispatch % 5))
    if "trace" in node:
        with Path(node["trace"]).open("a") as file:
            file.write(f"{order.dispatch} {time.time()}\n")
    return Trained(None, 10, 4.0, 0.5)


honest = client_app(model=model, train=train)
app = ClientApp()


@app.train()
def _(message: Message, context: Context) -> Message:
    dispatch, node = message.content["config"]["dispatch"], context.node_config
    past = context.state.setdefault("past", ConfigRecord({"orders": 0, "dispatch": -1}))
    faults = node.get("fault", "none").split(",")
    turn = -1 if context.run_config["resume"] else min(past["orders"], len(faults) - 1)
    fault = faults[turn] if dispatch < node.get("fault-until", 10**9) else "none"
    match fault:
        case "raise":
            raise ZeroDivisionError("on purpose")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "late":
            time.sleep(node["late-seconds"])
    reply = honest(message, context)
    arrays, metrics = reply.content["arrays"], reply.content["metrics"]
    match fault:
        case "nan":
            arrays["flat"] = Array(arrays["flat"].numpy() * np.float32("nan"))
        case "shape":
            arrays["flat"] = Array(arrays["flat"].numpy()[:-1])
        case "repeat":
            metrics["dispatch"] = past["dispatch"]
    past["orders"], past["dispatch"] = past["orders"] + 1, dispatch
    return reply
