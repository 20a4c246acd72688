"""``fault`` in a node's config says how it fails, ``fault-until`` up to which dispatch.

Into the file ``trace`` it writes when it was done with which dispatch.
"""

import os
import signal
import time
from pathlib import Path

import torch
from task import model
from torch import nn

from fedfa.deployment import Order
from fedfa.executors.base import Trained
from fedfa.flower import client_app


def train(module: nn.Module, order: Order, node: dict) -> Trained:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * (order.dispatch % 5))
        if order.dispatch < node.get("fault-until", 10**9):
            match node.get("fault"):
                case "raise":
                    raise ZeroDivisionError("as it was told")
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(600)
                case "nan":
                    next(module.parameters()).mul_(float("nan"))
    if "trace" in node:
        with Path(node["trace"]).open("a") as file:
            file.write(f"{order.dispatch} {time.time()}\n")
    return Trained(None, 10, 4.0, 0.5)


app = client_app(model=model, train=train)
