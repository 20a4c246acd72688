"""Ordinary models: every executor trains them as a plain PyTorch loop does; and how their memory layout is chosen."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from fedfa.executors.capture import CannotCapture
from fedfa.executors.lanes import Lanes
from fedfa.executors.registry import make_executor
from fedfa.learning.device import CPU
from fedfa.learning.local import own_seed
from fedfa.learning.probe import say_once
from tests.helpers.ordinary_models import MODELS, Answer, Apply, Tutorial, make_task, task_of

ROUNDS = 2


def by_hand(task: fedfa.Task, seed: int = 0) -> dict[str, Tensor]:
    """FedAvg in plain PyTorch. Integer buffers stay as they were at the start."""
    start: dict[str, Any] = {name: value.clone() for name, value in task.build(seed).state_dict().items()}
    total, model = sum(task.sizes), start
    for nth in range(ROUNDS):
        trained = [one_client(task, seed, model, client, nth) for client in range(task.num_clients)]
        model = {
            name: sum(state[name] * (size / total) for state, size in zip(trained, task.sizes, strict=True))
            if value.is_floating_point() else value
            for name, value in start.items()
        }  # fmt: skip
    return model


def one_client(task: fedfa.Task, seed: int, start: dict[str, Tensor], client: int, nth: int) -> dict[str, Tensor]:
    module = task.build(seed)
    module.load_state_dict(start)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=task.local.lr)
    torch.manual_seed(own_seed(seed, client, nth))
    for batch in task.batches(seed, client, nth, task.local.epochs):
        optimizer.zero_grad()
        task.loss(module(task.inputs[batch]), task.targets[batch]).backward()
        optimizer.step()
    return module.state_dict()


def run(task: fedfa.Task, executor: str) -> fedfa.Run:
    stop = {"updates": ROUNDS * task.num_clients}
    return fedfa.simulate(
        fedfa.FedAvg(concurrency=task.num_clients),
        task,
        "constant",
        stop,
        engine={"executor": executor, "evaluate_every": 1000},
    )


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], start: dict[str, Tensor]) -> None:
    """Name by name, to rounding: relative to how far each tensor went, and all of them."""
    assert ours.keys() == theirs.keys()
    floating = [name for name, value in start.items() if value.is_floating_point()]
    whole = sum(float((theirs[name] - start[name]).norm()) ** 2 for name in floating) ** 0.5
    assert whole > 1e-3
    for name, value in theirs.items():
        if name not in floating:
            assert torch.equal(ours[name], value), name
            continue
        moved, apart = float((value - start[name]).norm()), float((ours[name] - value).norm())
        rounding = 1e-3 * moved + 1e-5 * whole + 1e-6 * float(value.norm())
        assert apart <= rounding, f"{name}: {apart:.2g} apart after moving by {moved:.2g}"


@pytest.mark.parametrize("name", [*MODELS, *Answer.models])
def test_every_executor_trains_as_plain_pytorch_does(name: str) -> None:
    if name in Answer.models:
        pytest.importorskip("transformers", reason="transformers is not installed")
    task = task_of(name)
    start, expected = task.build(0).state_dict(), by_hand(task)
    for executor in ("inline", "batched", "auto"):
        done = run(task, executor)
        assert done.updates["outcome"].to_list() == ["accepted"] * ROUNDS * task.num_clients
        assert_same(task.state_dict(done.model, 0), expected, start)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    """What was logged so far; lines that are said once are said anew."""
    say_once.cache_clear()
    caplog.set_level(logging.WARNING, "fedfa")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "fedfa"]


def head(values: int) -> dict[str, nn.Module]:
    return {"conv": nn.Conv2d(3, 4, 3, padding=1), "head": nn.Linear(values, 3)}


def by_strides(m: Any, x: Tensor) -> Tensor:
    x = m.conv(x)
    return m.head(x.as_strided((len(x), 256), (256, 1)))


def amplified(m: Any, x: Tensor) -> Tensor:
    """Rounding in float32 changes everything here; it is no sign of a wrong layout."""
    return m.head((m.conv(x).mean((2, 3)) * 1e6) % 1.0)


def noisy(m: Any, x: Tensor) -> Tensor:
    return m.head(F.dropout(m.conv(x), 0.5, m.training).flatten(1))


CHOICES: dict[str, tuple[Any, bool, str]] = {
    "view": (Tutorial, False, "RuntimeError: view size is not compatible"),
    "flatten": (lambda: Tutorial(nn.Flatten()), True, ""),
    "strides": (lambda: Apply(by_strides, **head(256)), False, "its outputs differ"),
    "amplified rounding": (lambda: Apply(amplified, **head(4)), True, ""),
    "random masks": (lambda: Apply(noisy, **head(256)), True, ""),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_layout_is_chosen_by_trying_and_said_once(name: str, said: Any) -> None:
    model, channels_last, reason = CHOICES[name]
    task = make_task("cifar" if model is Tutorial or name == "flatten" else "image", model)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    layouts = [task.layout(task.build(seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(2), expected)
    assert [layout.channels_last for layout in layouts] == [channels_last] * 3
    lines = said()
    assert len(lines) == bool(reason)
    if reason:
        assert lines[0].startswith(f"This model cannot be computed channels last ({reason}")


def test_nothing_is_tried_where_no_tensor_has_four_dimensions() -> None:
    calls = []
    task = make_task("vector", lambda: Apply(lambda m, x: calls.append(x) or m.a(x), a=nn.Linear(12, 3)))
    assert not task.layout(task.build(0)).channels_last
    assert not calls


def test_a_model_that_insists_on_whole_batches_is_given_one() -> None:
    model = lambda: Apply(lambda m, x: m.head(m.conv(x).reshape(10, 256)), **head(256))  # noqa: E731
    task = make_task("image", model, sizes=(10, 20), batch_size=10)
    assert run(task, "inline").updates["outcome"].to_list() == ["accepted"] * 4
    assert task.layout(task.build(0)).channels_last


@pytest.mark.parametrize("executor", ["auto", "inline", "batched"])
@pytest.mark.parametrize("kind", ["image", "vector"])
def test_a_model_that_raises_in_plain_pytorch_is_named_at_the_start(kind: str, executor: str, tmp_path: Path) -> None:
    wrong = {"image": lambda: Apply(noisy, **head(255)), "vector": lambda: nn.Linear(11, 3)}
    with pytest.raises(
        fedfa.ConfigError, match=r"^model: raised RuntimeError: mat1 .* on a batch of shape \("
    ) as caught:
        fedfa.simulate(
            "fedavg:concurrency=2", make_task(kind, wrong[kind]), engine={"executor": executor}, out=tmp_path / "a"
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["shared module", "tied embedding", "tutorial CNN, view"])
def test_shared_tensors_and_views_can_be_batched(name: str) -> None:
    task = task_of(name)
    executor: Any = make_executor("batched", task, 0)
    assert executor.name == "batched"
    executor._bound.load(torch.from_numpy(task.initial(0).vector))
    after, fresh = executor._bound.module, task.build(0)
    assert torch.equal(after(task.inputs[:4]), fresh(task.inputs[:4]))  # tracing left the module as it was


class Warming(nn.Module):
    """Counts its steps in a buffer that does not travel, and reads it."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return self.layer(x) / self.steps.clamp(min=1)


class Replacing(Warming):
    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return self.layer(x) / self.steps


def test_a_count_that_every_client_keeps_is_not_batched(said: Any) -> None:
    task = make_task("vector", Warming)
    assert_same(task.state_dict(run(task, "batched").model, 0), by_hand(task), task.build(0).state_dict())
    assert said() == [
        "This model cannot be batched (it changes steps, which every client would have to keep for itself); "
        "training clients one by one."
    ]


def test_a_graph_refuses_buffers_that_are_replaced() -> None:
    with pytest.raises(CannotCapture, match="it replaces its buffer steps"):
        Lanes(make_task("vector", Replacing), 0, CPU)


def test_what_cannot_be_counted_is_trained_one_by_one(said: Any) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() and len(x) == 4:
            raise OSError("no gradients, no answer")
        return m.a(x)

    task = make_task("vector", lambda: Apply(forward, a=nn.Linear(12, 3)))
    assert make_executor("auto", task, 0).name == "inline"
    assert said() == [
        "This model cannot be batched (its arithmetic cannot be counted: OSError: no gradients, no answer); "
        "training clients one by one."
    ]


def test_a_lazy_model_is_named() -> None:
    with pytest.raises(fedfa.ConfigError, match="model: weight has no shape yet; run a batch through the model"):
        make_task("vector", lambda: nn.LazyLinear(3)).initial(0)
