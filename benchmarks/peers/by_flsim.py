"""The job by FLSim, by the authors of FedBuff: its synchronous trainer, or its asynchronous one on its virtual clock.

Its clients start at a given rate: ten are in flight on average. Metrics on training data are off.
"""

# pyright: reportMissingImports=false

from typing import Any

import flsim.configs  # noqa: F401 - registers them
import torch
from flsim.clients.base_client import ClientConfig
from flsim.data.data_provider import IFLDataProvider, IFLUserData
from flsim.optimizers.async_aggregators import FedAvgWithLRFedBuffAggregatorConfig
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig
from flsim.optimizers.server_optimizers import FedAvgOptimizerConfig
from flsim.servers.sync_servers import SyncServerConfig
from flsim.trainers.async_trainer import AsyncTrainer, AsyncTrainerConfig
from flsim.trainers.sync_trainer import SyncTrainer, SyncTrainerConfig
from flsim.utils.async_trainer.training_event_generator import (
    AsyncTrainingEventGeneratorConfig,
    PoissonAsyncTrainingStartTimeDistrConfig,
)
from flsim.utils.example_utils import FLModel, MetricsReporter
from flsim.utils.timing.training_duration_distribution import PerUserExponentialDurationDistributionConfig
from job import BATCH, BUFFER, COHORT, EPOCHS, LR, WARM_UP, job, new_model
from omegaconf import OmegaConf

JOB = job()
SECONDS = 8.0
"""What a client takes on average, on the virtual clock."""


class Enough(Exception):
    """All rounds are done."""


def evaluate(model: Any) -> None:
    JOB.evaluate(model.fl_get_module())
    if len(JOB.seen) == JOB.rounds + WARM_UP:
        raise Enough


class Synchronous(SyncTrainer):
    def _maybe_run_evaluation(self, *, best_metric: Any, best_model_state: Any, **_: Any) -> Any:
        evaluate(self.global_model())
        return best_metric, best_model_state


class Asynchronous(AsyncTrainer):
    aggregations = 0

    def _global_update_done(self) -> None:
        self.aggregations += 1
        if self.aggregations % (COHORT // BUFFER) == 0:
            evaluate(self.global_model())


class User(IFLUserData):
    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.size = len(targets)
        self.batches = [
            {"features": one, "labels": other}
            for one, other in zip(inputs.split(BATCH), targets.split(BATCH), strict=True)
        ]

    def num_train_examples(self) -> int:
        return self.size

    def num_train_batches(self) -> int:
        return len(self.batches)

    def train_data(self) -> Any:
        return iter(self.batches)

    def num_eval_examples(self) -> int:
        return 0

    def num_eval_batches(self) -> int:
        return 0

    def eval_data(self) -> Any:
        return iter(())


class Users(IFLDataProvider):
    def __init__(self) -> None:
        self.users = [User(*client) for client in JOB.clients]

    def train_user_ids(self) -> list[int]:
        return list(range(len(self.users)))

    def num_train_users(self) -> int:
        return len(self.users)

    def get_train_user(self, user_index: int) -> User:
        return self.users[user_index]

    def train_users(self) -> list[User]:
        return self.users

    def eval_users(self) -> list[User]:
        return []

    def test_users(self) -> list[User]:
        return []


client = ClientConfig(epochs=EPOCHS, optimizer=LocalOptimizerSGDConfig(lr=LR))
common: Any = {"epochs": 10_000, "do_eval": True, "report_train_metrics": False, "client": client}
if JOB.mode == "fedbuff":
    kind: Any = Asynchronous
    config: Any = AsyncTrainerConfig(
        aggregator=FedAvgWithLRFedBuffAggregatorConfig(lr=1.0 / BUFFER, buffer_size=BUFFER),
        training_event_generator=AsyncTrainingEventGeneratorConfig(
            training_start_time_distribution=PoissonAsyncTrainingStartTimeDistrConfig(training_rate=COHORT / SECONDS),
            duration_distribution_generator=PerUserExponentialDurationDistributionConfig(
                training_duration_mean=SECONDS
            ),
        ),
        **common,
    )
else:
    kind = Synchronous
    server = SyncServerConfig(server_optimizer=FedAvgOptimizerConfig())
    config = SyncTrainerConfig(users_per_round=COHORT, server=server, **common)
trainer = kind(model=FLModel(new_model()), cuda_enabled=False, **OmegaConf.structured(config))
users = Users()
try:
    trainer.train(
        data_provider=users,
        metrics_reporter=MetricsReporter([]),
        num_total_users=users.num_train_users(),
        distributed_world_size=1,
    )
except Enough:
    JOB.finish("flsim")
