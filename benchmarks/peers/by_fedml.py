"""The job by FedML's single-process simulation: its FedAvgAPI, and its trainer for classification."""

# pyright: reportMissingImports=false

import logging
from types import SimpleNamespace
from typing import Any

import torch
from fedml.core.mlops import MLOpsStore
from fedml.simulation.sp.fedavg.fedavg_api import FedAvgAPI
from job import BATCH, COHORT, EPOCHS, LR, WARM_UP, job, new_model
from torch.utils.data import DataLoader, TensorDataset

logging.disable(logging.INFO)
JOB = job()


class Api(FedAvgAPI):
    def _local_test_on_all_clients(self, round_idx: int) -> None:
        JOB.evaluate(self.model_trainer.model)


arguments: Any = SimpleNamespace(
    dataset="digits", client_num_in_total=len(JOB.clients), client_num_per_round=COHORT,
    comm_round=JOB.rounds + WARM_UP, frequency_of_the_test=1, client_optimizer="sgd", learning_rate=LR, epochs=EPOCHS,
    batch_size=BATCH, federated_optimizer="FedAvg", enable_wandb=False, using_mlops=False, rank=0,
)  # fmt: skip
MLOpsStore.mlops_args = arguments  # nothing is sent to FedML's service
loaders = {
    number: DataLoader(TensorDataset(*client), batch_size=BATCH, shuffle=True)
    for number, client in enumerate(JOB.clients)
}
sizes = {number: len(targets) for number, (_, targets) in enumerate(JOB.clients)}
data = [sum(sizes.values()), len(JOB.test[1]), None, None, sizes, loaders, dict.fromkeys(sizes), 10]
Api(arguments, torch.device("cpu"), data, new_model()).train()
JOB.finish("fedml")
