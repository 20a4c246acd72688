"""Which tasks share a stack, and what becomes of their examples."""

from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from fedfa.executors import stack as stacks_module
from fedfa.executors.batched import Batched
from fedfa.executors.stack import Stacks
from tests.helpers.training import order, own_task

SIZES = (6, 9, 7)


def small(activation: type[nn.Module] = nn.ReLU, sizes: tuple[int, ...] = SIZES, **local: Any) -> fedfa.Task:
    return own_task(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), activation(), nn.Linear(8, 4)), sizes, **local
    )


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


def number_of_stacks(*tasks: fedfa.Task) -> int:
    stacks = Stacks()
    for seed, task in enumerate(tasks):
        stacks.share(task)
        Batched(task, seed)
    return len(stacks.all)


def test_tasks_that_are_alike_share_a_stack() -> None:
    assert number_of_stacks(small(), small()) == 1  # models of the same kind, made by two functions
    assert number_of_stacks(small(), small(lr=0.3)) == 1
    assert number_of_stacks(small(), small(sizes=(5, 14, 12, 4))) == 1


@pytest.mark.parametrize(
    "other",
    [
        small(nn.Tanh),
        small(momentum=0.9),
        small(weight_decay=0.1),
        small(epochs=2),
        small(batch_size=5),
        small(sizes=(3, 2)),  # its batches are shorter
        small(sizes=(900, 5)),  # more steps than the tables hold
    ],
    ids=["activation", "momentum", "decay", "epochs", "batches", "short batches", "long clients"],
)
def test_tasks_that_differ_do_not(other: fedfa.Task) -> None:
    assert number_of_stacks(small(), other) == 2


def test_nor_do_tasks_with_other_losses_or_too_much_data(monkeypatch: pytest.MonkeyPatch) -> None:
    other = small()
    other.loss = smoothed
    assert number_of_stacks(small(), other) == 2
    monkeypatch.setattr(stacks_module, "MOST_BYTES", 100)
    assert number_of_stacks(small(), small()) == 2


def test_examples_of_members_that_left_make_room_for_others() -> None:
    """While a client is trained: its positions move with the examples."""
    first, second, third = small(), small(sizes=(8, 8, 12)), small(sizes=(5, 11))
    alone = Batched(small(sizes=(8, 8, 12)), 1)
    alone.submit(order(second, 2))
    stacks = Stacks()
    for task in (first, second, third):
        stacks.share(task)
    executors = Batched(first, 0), Batched(second, 1)
    executors[1].submit(order(second, 2))
    executors[1].submit(order(second, 0))
    executors[1].result(0)  # client 2 has taken some of its steps
    (stack,) = stacks.all
    assert [member.start for member in stack.members] == [0, sum(SIZES)]
    executors[0].close()
    Batched(third, 2)
    assert [member.task for member in stack.members] == [second, third]
    assert len(stack._inputs) == 28 + 16
    ours, theirs = executors[1].result(2), alone.result(2)
    assert ours.params is not None
    assert theirs.params is not None
    assert ours.params.tobytes() == theirs.params.tobytes()
