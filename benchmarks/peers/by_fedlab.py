"""The job by FedLab: its standalone pipeline, server handler and serial SGD trainer."""

# pyright: reportMissingImports=false

import logging
from typing import Any

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from job import BATCH, COHORT, EPOCHS, LR, WARM_UP, job, new_model
from torch.utils.data import DataLoader, TensorDataset

logging.disable(logging.INFO)
JOB = job()


class Clients:
    """What FedLab asks of a data set: a loader for each client."""

    def get_dataloader(self, client: int, batch_size: int) -> Any:
        return DataLoader(TensorDataset(*JOB.clients[client]), batch_size=batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    def evaluate(self) -> None:
        JOB.evaluate(self.handler.model)


trainer = SGDSerialClientTrainer(new_model(), len(JOB.clients))
trainer.setup_dataset(Clients())
trainer.setup_optim(EPOCHS, BATCH, LR)
handler = SyncServerHandler(new_model(), JOB.rounds + WARM_UP, COHORT / len(JOB.clients))
Pipeline(handler, trainer).main()
JOB.finish("fedlab")
