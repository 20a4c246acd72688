"""Which executor is chosen, and which settings are refused."""

import pytest
import torch
from torch import nn

import fedfa
from fedfa.errors import ConfigError
from fedfa.executors.on_this_machine import BATCHED_FROM, quickest
from fedfa.executors.registry import make_executor
from fedfa.learning.device import CPU, Device
from fedfa.learning.models.small import mlp
from fedfa.strategies.fedfa import FedFaParam
from tests.helpers.training import own_task


def test_auto_batches_small_models_with_many_pending_clients() -> None:
    small = own_task(lambda: nn.Sequential(nn.Flatten(), mlp(inputs=16, classes=4)))
    assert quickest(small, 0, CPU, BATCHED_FROM)[0] == "batched"
    assert quickest(small, 0, CPU, BATCHED_FROM - 1)[0] == "inline"
    assert make_executor("auto", small, 0).name == "inline"
    large = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3000), nn.Linear(3000, 4)))
    name, why = quickest(large, 0, CPU, BATCHED_FROM)
    assert (name, why) == ("inline", "63,004 parameters are bound by arithmetic")


def test_wrong_devices_and_precisions_are_refused() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    assert Device.of("cpu") == CPU
    with pytest.raises(ConfigError, match="executor = 'lanes': needs a GPU"):
        make_executor("lanes", task, 0)
    before = torch.get_num_threads()
    with pytest.raises(ConfigError, match="executor = 'lanes': needs a GPU"):
        fedfa.simulate(FedFaParam(concurrency=2), task, engine={"executor": "lanes", "threads": before + 1})
    assert torch.get_num_threads() == before
    with pytest.raises(ConfigError, match="precision = 'tf32': the CPU computes in fp32 or bf16"):
        Device.of("cpu", "tf32")
    with pytest.raises(ConfigError, match="executor = 'batched': computes in fp32; with bf16 take inline"):
        make_executor("batched", task, 0, Device.of("cpu", "bf16"))
    with pytest.raises(ConfigError, match="device = 'tpu': must be auto, cpu or cuda"):
        Device.of("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no GPU that torch can use"):
            fedfa.simulate("fedavg", task, engine={"device": "cuda"})
        assert Device.of("auto") == CPU
