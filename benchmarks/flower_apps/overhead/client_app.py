import time
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from task import task
from torch import nn

from fedfa.deployment.flower import Trained, TrainRequest, client_app

app = ClientApp()


@app.train()
def _(message: Message, context: Context) -> Message:
    """Only now are the width known, and where to note when which dispatch was done and at what cost so far."""
    config = context.run_config

    def train(module: nn.Module, request: TrainRequest, node: Any) -> Trained:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.01)
        with Path(f"{config['out']}.trained").open("a") as trace:
            trace.write(f"{request.dispatch} {time.time()} {time.process_time()}\n")
        return Trained(None, 10, 1.0, 0.5)

    return client_app(model=task(int(config["width"])).model, train=train)(message, context)
