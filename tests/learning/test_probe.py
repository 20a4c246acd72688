"""The memory layout of a model is chosen by trying."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from tests.helpers.ordinary_models import Apply, Tutorial, make_task
from tests.helpers.training import run_fedavg


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
def test_the_layout_is_chosen_by_trying_and_logged_once(name: str, logged: Any) -> None:
    model, channels_last, reason = CHOICES[name]
    task = make_task("cifar" if model is Tutorial or name == "flatten" else "image", model)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    layouts = [task.layout(task.build(seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(2), expected)
    assert [layout.channels_last for layout in layouts] == [channels_last] * 3
    lines = logged()
    assert len(lines) == bool(reason)
    if reason:
        assert lines[0].startswith(f"This model cannot be computed channels last ({reason}")


def test_nothing_is_tried_where_no_tensor_has_four_dimensions() -> None:
    calls = []
    task = make_task("vector", lambda: Apply(lambda m, x: calls.append(x) or m.a(x), a=nn.Linear(12, 3)))
    assert not task.layout(task.build(0)).channels_last
    assert not calls


def test_a_model_that_needs_whole_batches_is_tried_on_one() -> None:
    model = lambda: Apply(lambda m, x: m.head(m.conv(x).reshape(10, 256)), **head(256))  # noqa: E731
    task = make_task("image", model, sizes=(10, 20), batch_size=10)
    assert run_fedavg(task, "inline").updates["outcome"].to_list() == ["accepted"] * 4
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
