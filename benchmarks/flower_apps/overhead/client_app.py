from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from task import task
from torch import nn

from fedfa.deployment import Order
from fedfa.executors.base import Trained
from fedfa.flower import client_app

app = ClientApp()


def train(module: nn.Module, order: Order, node: Any) -> Trained:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01)
    return Trained(None, 10, 1.0, 0.5)


@app.train()
def _(message: Message, context: Context) -> Message:
    """The width is known only now."""
    width = int(context.run_config["width"])
    return client_app(model=task(width).model, train=train)(message, context)
