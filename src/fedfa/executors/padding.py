"""Batches of unequal size in few shapes: a short one is filled up with copies of an example of its own.

The loss of a copy has weight zero. (Zeros in place of the example could turn into 0 x inf.) That needs a loss that is a
mean over examples, and a model that treats each example by itself: both are tried before they are relied upon.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from fedfa.errors import in_a_line
from fedfa.learning.private_torch import Dropout, NormWithStatistics

LARGEST_ERROR = 1e-3
"""Largest distance between what a filled-up batch does and what it does as it is, in its length: rounding only."""


def few_shapes(sizes: Mapping[int, int]) -> dict[int, int]:
    """To which size batches of each size are filled up; ``sizes`` says how many there are of each.

    To one size; where more than half of all examples would be copies, also to its half, its quarter and so on.
    """
    widths = [max(sizes)]
    while True:
        found = {size: min(width for width in widths if width >= size) for size in sizes}
        if sum((2 * size - found[size]) * number for size, number in sizes.items()) >= 0:
            return found
        widths.append(-(-widths[-1] // 2))


def filled_up(table: Tensor, counts: Tensor) -> Tensor:
    """Rows of which so many entries count; the others become copies of the first one."""
    return torch.where(torch.arange(table.shape[-1]) < counts[..., None], table, table[..., :1])


def weights_of(counts: Tensor, columns: Tensor) -> Tensor:
    """The weights of the examples in these columns in the mean over their batch, of which so many count."""
    counts = counts[..., None]
    return (columns < counts) / counts.clamp(min=1)


def weighted_mean(loss: Callable[[Any, Tensor], Tensor], outputs: Any, targets: Tensor, weights: Tensor) -> Tensor:
    """The loss of each example alone, averaged with these weights."""

    def of_one(output: Any, target: Tensor) -> Tensor:
        return loss(output[None], target[None])

    return (vmap(of_one)(outputs, targets) * weights).sum()


def why_never(module: nn.Module) -> str:
    """What about this model's parts forbids to fill its batches up; empty if nothing does."""
    if any(isinstance(m, Dropout) and m.p > 0 for m in module.modules()):  # pyright: ignore[reportOperatorIssue]
        return "it draws random numbers: dropout"
    if any(isinstance(m, NormWithStatistics) for m in module.modules()):
        return "it has statistics of whole batches, such as BatchNorm's"
    return ""


def why_not(batch: Tensor, effects: Callable[..., list[Tensor]]) -> str:
    """Why filling up does not work; empty if it does. Tried with parts of this batch.

    ``effects`` takes positions of examples, and their weights if there are any.
    """
    width, columns = len(batch), torch.arange(len(batch))
    try:
        with warnings.catch_warnings():  # torch warns where it would loop over examples
            warnings.filterwarnings("error", "There is a performance drop")
            for count in sorted({1, width // 2, width - 1, width} - {0}):
                counts = torch.tensor(count)
                plain, ours = effects(batch[:count]), effects(filled_up(batch, counts), weights_of(counts, columns))
                if any(not (a - b).norm() <= LARGEST_ERROR * b.norm() for a, b in zip(ours, plain, strict=True)):
                    return "filled up, they do not train it the same way"
    except Exception as error:  # code of the user's own
        return in_a_line(error)
    return ""


def mixed(targets: Tensor) -> Tensor:
    """Positions of all examples, those of different classes in turn: a few of them show what a loss does with many."""
    order = np.random.Generator(np.random.Philox(key=0)).permutation(len(targets))
    if targets.dim() == 1 and not targets.is_floating_point():
        order = order[np.argsort(targets.numpy()[order], kind="stable")]
        labels = targets.numpy()[order]
        order = order[np.argsort(np.arange(len(labels)) - np.searchsorted(labels, labels), kind="stable")]
    return torch.from_numpy(order)
