"""Filling batches up: to which sizes, with which weights, and for which losses and models it is refused."""

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedfa.executors.padding import few_shapes, filled_up, mixed, weighted_mean, weights_of, why_not
from tests.helpers.losses import MEANS, NO_MEANS


@given(st.dictionaries(st.integers(1, 100), st.integers(1, 1000), min_size=1))
def test_at_least_half_of_what_is_computed_counts(sizes: dict[int, int]) -> None:
    shapes = few_shapes(sizes)
    assert shapes.keys() == sizes.keys()
    assert all(size <= shapes[size] <= max(sizes) for size in sizes)
    assert 2 * sum(size * number for size, number in sizes.items()) >= sum(
        shapes[size] * number for size, number in sizes.items()
    )
    assert len(set(shapes.values())) <= 8  # 100, 50, 25, 13, 7, 4, 2, 1


def test_one_shape_where_that_is_little_more_work() -> None:
    assert set(few_shapes(Counter(range(2, 33))).values()) == {32}
    assert few_shapes({32: 1, 20: 1, 3: 10}) == {32: 32, 20: 32, 3: 8}


def test_a_short_batch_is_filled_up_with_its_first_example_and_weight_zero() -> None:
    table, counts = torch.tensor([[5, 6, 7], [8, 9, 0], [3, 0, 0]]), torch.tensor([3, 2, 1])
    assert filled_up(table, counts).tolist() == [[5, 6, 7], [8, 9, 8], [3, 3, 3]]
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert torch.equal(weights_of(counts, torch.arange(3)), expected)


def test_examples_of_different_classes_come_in_turn() -> None:
    targets = torch.tensor([2] * 50 + [0] * 30 + [9] * 2)
    order = mixed(targets)
    assert sorted(order.tolist()) == list(range(82))
    assert targets[order[:8]].tolist() == [0, 2, 9, 0, 2, 9, 0, 2]
    real = mixed(torch.arange(82.0))
    assert sorted(real.tolist()) == list(range(82))
    assert real.tolist() != list(range(82))


INPUTS, LABELS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
REFUSED: dict[str, Any] = NO_MEANS | {
    "leaves a class out": lambda outputs, targets: F.cross_entropy(outputs, targets, ignore_index=2),
    "compares examples": lambda outputs, targets: F.cross_entropy(outputs - outputs.mean(0), targets),
    "reads values": lambda outputs, targets: F.cross_entropy(outputs, targets) * (2 if outputs.sum() > 0 else 1),
}


def reason(loss: Any) -> str:
    """Why the batches of a linear model cannot be filled up for this loss."""

    def effects(rows: Tensor, *weights: Tensor) -> list[Tensor]:
        params = torch.linspace(-1, 1, 15, requires_grad=True)
        outputs = INPUTS[rows] @ params.view(5, 3)
        value = weighted_mean(loss, outputs, LABELS[rows], *weights) if weights else loss(outputs, LABELS[rows])
        return [value.detach(), *torch.autograd.grad(value, params)]

    return why_not(mixed(LABELS)[:8], effects)


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_examples_may_be_filled_up(name: str) -> None:
    assert reason(MEANS[name]) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_another_loss_is_found_out(name: str) -> None:
    assert reason(REFUSED[name]) != ""
