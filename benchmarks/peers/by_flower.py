"""The job by Flower's simulation runtime on Ray: FedAvg of its message API, clients as its PyTorch quickstart has them.

``run_simulation`` starts the same runtime as ``flwr run`` without a SuperLink beside it. A client gets one CPU, so as
many train at a time as there are cores.
"""

# pyright: reportMissingImports=false
# ruff: noqa: TID251

import os
import sys
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # for Ray's workers

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from job import COHORT, WARM_UP, Job, job, local_training, new_model

server, client = ServerApp(), ClientApp()
split: dict[str, Job] = {}
"""A worker process reads the data once."""


@client.train()
def train(message: Any, context: Any) -> Any:
    import torch

    torch.set_num_threads(1)
    data = split.setdefault("here", Job(os.environ["DIGITS_SPLIT"]))
    model = new_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, targets = data.clients[int(context.node_config["partition-id"])]
    local_training(model, inputs, targets)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(targets)})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Any, context: Any) -> None:
    JOB = job()

    def evaluate(number: int, arrays: Any) -> None:
        if number:
            model = new_model()
            model.load_state_dict(arrays.to_torch_state_dict())
            JOB.evaluate(model)

    share = COHORT / len(JOB.clients)
    strategy = FedAvg(fraction_train=share, min_train_nodes=COHORT, fraction_evaluate=0.0)
    arrays = ArrayRecord(new_model().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=JOB.rounds + WARM_UP, evaluate_fn=evaluate)
    JOB.finish("flwr", "ray")


if __name__ == "__main__":
    os.environ["DIGITS_SPLIT"] = sys.argv[1]
    import by_flower  # by this name Ray's workers find the apps

    run_simulation(
        server_app=by_flower.server,
        client_app=by_flower.client,
        num_supernodes=len(Job(sys.argv[1]).clients),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
