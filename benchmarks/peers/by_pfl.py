"""The job by pfl-research: FederatedAveraging on a SimulatedBackend, as its benchmarks set it up."""

# pyright: reportMissingImports=false

import os
from typing import Any

import torch
from job import BATCH, COHORT, EPOCHS, LR, WARM_UP, job, new_model
from torch import nn

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

JOB = job()


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = new_model()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return nn.functional.cross_entropy(self(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: torch.Tensor, targets: torch.Tensor, eval: bool = True) -> dict[str, Any]:
        return {"loss": Weighted(self.loss(inputs, targets).item() * len(inputs), len(inputs))}


class Evaluation(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        JOB.evaluate(model.pytorch_model)
        return False, Metrics()


users = dict(enumerate(JOB.clients))
dataset = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
module = Module()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=JOB.rounds + WARM_UP,
        evaluation_frequency=10**9,
        train_cohort_size=COHORT,
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(training_data=dataset, val_data=dataset, postprocessors=[WeightByDatapoints()]),
    model=PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    ),
    model_train_params=NNTrainHyperParams(local_learning_rate=LR, local_num_epochs=EPOCHS, local_batch_size=BATCH),
    model_eval_params=NNEvalHyperParams(local_batch_size=None),
    callbacks=[Evaluation()],
    send_metrics_to_platform=False,
)
JOB.finish("pfl")
