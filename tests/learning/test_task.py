"""Tasks: custom data, losses and metrics, and what is refused."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import fedfa
from tests.helpers.training import blobs, own_task


class Pairs(Dataset[Any]):
    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index], int(self.targets[index])


def test_map_style_datasets_train_as_tensors_do() -> None:
    data = [blobs(9, seed) for seed in range(3)]
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4))  # noqa: E731
    tensors = fedfa.Task(model=model, clients=data, test=data[0])
    datasets = fedfa.Task(model=model, clients=[Pairs(*pair) for pair in data], test=Pairs(*data[0]))
    runs = [
        fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=6)) for task in (tensors, datasets)
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


def test_a_model_that_every_run_would_share_is_refused() -> None:
    """The second run would start from the first one's result."""
    model, data = nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), [blobs(9, seed) for seed in range(3)]
    task = fedfa.Task(model=lambda: model, clients=data, test=data[0])
    with pytest.raises(fedfa.ConfigError, match="model: made the same object twice"):
        fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=6))
    copies = fedfa.Task(model=lambda: copy.deepcopy(model), clients=data, test=data[0])
    assert fedfa.simulate(fedfa.FedAvg(concurrency=2), copies, stop=fedfa.Stop(updates=6)).accepted.height == 6


def test_regression_with_a_custom_loss_and_metric() -> None:
    weights = torch.tensor([[1.0], [-2.0]])
    clients = [(x, x @ weights) for x in torch.randn(5, 20, 2, generator=torch.Generator().manual_seed(0))]
    task = fedfa.Task(
        model=lambda: nn.Linear(2, 1),
        clients=clients,
        test=clients[0],
        loss=F.mse_loss,
        metric=lambda outputs, targets: -(outputs - targets).abs().mean(),
        local=fedfa.LocalTraining(lr=0.05),
    )
    run = fedfa.simulate(fedfa.FedFaParam(concurrency=3, window=2), task, stop=fedfa.Stop(updates=60))
    assert run.final_accuracy > -0.05
    assert run.clients.is_empty()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": []}, "clients: needs at least one client's data"),
        ({"clients": [torch.zeros(3)]}, "clients[0]: must be a pair of tensors"),
        ({"clients": [(torch.zeros(3, 16), torch.zeros(2))]}, "clients[0]: 3 inputs but 2 targets"),
        ({"clients": [(torch.zeros(0, 16), torch.zeros(0))]}, "clients[0]: is empty"),
        ({"test": (torch.zeros(0, 16), torch.zeros(0))}, "test: is empty"),
    ],
)
def test_wrong_data_is_named(settings: dict[str, Any], message: str) -> None:
    good = {"model": lambda: nn.Linear(16, 4), "clients": [blobs(4, 0)], "test": blobs(4, 1)}
    with pytest.raises(fedfa.ConfigError) as caught:
        fedfa.Task(**(good | settings))
    assert message in str(caught.value)


def test_wrong_models_are_named() -> None:
    for model, message in [
        (lambda: nn.ReLU(), "model: has no trainable parameter"),
        (lambda: nn.Linear(16, 4).half(), "weight is torch.float16"),
        (lambda: "a model", "must make an nn.Module, made a str"),
    ]:
        with pytest.raises(fedfa.ConfigError, match=message):
            own_task(model).initial(0)


def test_the_digest_follows_data_split_and_weights() -> None:
    plain = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4))  # noqa: E731
    same = [own_task(plain).digest(0) for _ in range(2)]
    assert same[0] == same[1]
    others = {own_task(plain).digest(1), own_task(plain, sizes=(10, 17, 6, 9)).digest(0)}
    assert len(others | {same[0]}) == 3
