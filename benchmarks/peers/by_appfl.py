"""The job by APPFL's virtual-time simulation: its FedAvg, or its FedBuff with ten clients in flight.

Its memory saving (a garbage collection after every update) and the logging to the console are off. Its FedBuff weighs
an update by one over a number of clients that is set here to K, so that a buffer is averaged.
"""

# pyright: reportMissingImports=false

import logging
from pathlib import Path
from typing import Any

import numpy as np
from appfl.agent import SimClientAgent, SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile, SyncSimDriver
from job import BATCH, BUFFER, COHORT, EPOCHS, LR, WARM_UP, job, new_model
from torch.utils.data import TensorDataset

logging.disable(logging.INFO)
JOB = job()
ASYNCHRONOUS = JOB.mode == "fedbuff"
ROUNDS = JOB.rounds + WARM_UP


class Judge:
    """Stands before a driver's class and judges its global model as the other workers do."""

    def _global_eval(self, global_model: Any) -> None:
        model = new_model()
        model.load_state_dict(global_model)
        JOB.evaluate(model)


class Synchronous(Judge, SyncSimDriver): ...


class Asynchronous(Judge, AsyncSimDriver): ...


Path("metric.py").write_text("def accuracy(y, p):\n    return (p.argmax(1) == y).mean()\n")
configuration: Any = {
    "model_configs": {"model_path": str(Path(__file__).parent / "job.py"), "model_name": "new_model"},
    "algorithm_configs": {
        "trainer": "VanillaTrainer",
        "trainer_kwargs": {
            "mode": "epoch", "num_local_epochs": EPOCHS, "optim": "SGD", "optim_args": {"lr": LR},
            "train_batch_size": BATCH, "loss_fn": "CrossEntropyLoss", "do_validation": False, "optimize_memory": False,
            "metric_path": "metric.py", "metric_name": "accuracy",
        },
        "scheduler": "AsyncScheduler" if ASYNCHRONOUS else "SyncScheduler",
        "scheduler_kwargs": {"num_clients": COHORT, "optimize_memory": False},
        "aggregator": "FedBuffAggregator" if ASYNCHRONOUS else "FedAvgAggregator",
        "aggregator_kwargs": {
            "client_weights_mode": "equal" if ASYNCHRONOUS else "sample_size", "K": BUFFER, "num_clients": BUFFER,
            "alpha": 1.0, "optimize_memory": False,
        },
        "num_global_epochs": ROUNDS * (COHORT if ASYNCHRONOUS else 1),
    },
    "log_configs": {"logging_output_filename": "", "client_logging_output_filename": ""},
}  # fmt: skip
server = SimServerAgent(configuration, num_clients=COHORT)
clients = [
    SimClientAgent(configuration, client_id=f"client{number}", client_dataset=TensorDataset(*data))
    for number, data in enumerate(JOB.clients)
]
for agent in (server, *clients):
    agent.optimize_memory = False
slowness = 3 + np.random.default_rng(0).exponential(5, len(clients))
profiles = {
    client.get_id(): ClientProfile(compute_factor=float(s)) for client, s in zip(clients, slowness, strict=True)
}
server.set_sample_size(
    sample_sizes={client.get_id(): len(data[1]) for client, data in zip(clients, JOB.clients, strict=True)}
)
common: Any = {"logger": logging.getLogger("job"), "base_step_time": 1.0}
kind: Any = Asynchronous if ASYNCHRONOUS else Synchronous
own = {"eval_every": COHORT} if ASYNCHRONOUS else {"eval_every": 1, "target_rounds": ROUNDS}
driver = kind(server, clients, profiles, COHORT, **own, **common)
driver.run()
JOB.finish("appfl")
