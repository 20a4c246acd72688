"""The job by fluke: its FedAVG with its FastDataLoader, in memory."""

# pyright: reportMissingImports=false

from typing import Any

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver
from job import BATCH, COHORT, EPOCHS, LR, WARM_UP, job, new_model

JOB = job()


class Split:
    """Hands out the job's split in place of fluke's DataSplitter."""

    def assign(self, clients: int, batch_size: int) -> Any:
        def loader(data: Any) -> Any:
            return FastDataLoader(*data, num_labels=10, batch_size=batch_size, shuffle=True, skip_singleton=False)

        return ([loader(data) for data in JOB.clients], [None] * clients), None


class Evaluation(FederationObserver):
    def end_round(self, round: int) -> None:
        JOB.evaluate(algorithm.server.model)


environment = FlukeENV()
environment.set_seed(0)
environment.set_device("cpu")
environment.set_inmemory(True)
environment.set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False, task="classification", eval_every=1)
algorithm: Any = FedAVG(
    len(JOB.clients),
    Split(),
    DDict(
        model=new_model(),
        client=DDict(
            batch_size=BATCH,
            local_epochs=EPOCHS,
            loss="CrossEntropyLoss",
            optimizer=DDict(name="SGD", lr=LR),
            scheduler=DDict(name="StepLR", gamma=1.0, step_size=1),
        ),
        server=DDict(weighted=True),
    ),
)
algorithm.set_callbacks([Evaluation()])
algorithm.run(JOB.rounds + WARM_UP, COHORT / len(JOB.clients))
JOB.finish("fluke-fl")
