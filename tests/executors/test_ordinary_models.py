"""Ordinary models: every executor trains them as a plain PyTorch loop does."""

import pytest

from tests.helpers.ordinary_models import MODELS, Answer, task_of
from tests.helpers.training import ROUNDS, assert_same, fedavg_by_hand, run_fedavg


@pytest.mark.parametrize("name", [*MODELS, *Answer.models])
def test_every_executor_trains_as_plain_pytorch_does(name: str) -> None:
    if name in Answer.models:
        pytest.importorskip("transformers", reason="transformers is not installed")
    task = task_of(name)
    start, expected = task.build(0).state_dict(), fedavg_by_hand(task)
    for executor in ("inline", "batched", "auto"):
        done = run_fedavg(task, executor)
        assert done.updates["outcome"].to_list() == ["accepted"] * ROUNDS * task.num_clients
        assert_same(task.state_dict(done.model, 0), expected, start)
