"""Tries whether a model may be computed channels last.

Convolutions are faster channels last, and almost every model computes the same there. But ``view`` raises on such
tensors, and code that looks at strides may compute something else. So a model is run on one batch in both layouts.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedfa.errors import ConfigError, in_a_line
from fedfa.learning.flat import FlatModule
from fedfa.learning.private_torch import Dropout, tree_leaves

LARGEST_ERROR = 0.05
"""How far a tensor may differ between the layouts, relative to its length: rounding can flip single ReLUs."""
NEGLIGIBLE = 1e-3
"""The same, relative to all tensors of its kind: some gradients cancel to almost zero."""

logger = logging.getLogger("fedfa")

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Any, Tensor], Tensor]


@cache
def say_once(text: str) -> None:
    """Log this line, unless this process has done so before."""
    logger.warning(text)


class _Pass(NamedTuple):
    """The results of a forward pass, and of a backward pass if there is one."""

    outputs: list[Tensor]
    gradients: list[Tensor]
    buffers: list[Tensor]
    drew: bool
    """The pass drew random numbers. They come in memory order, so they differ between layouts."""


def why_not_channels_last(module: nn.Module, batches: Sequence[Batch], loss: Loss) -> str:
    """Why the model must not be computed channels last; empty if it may.

    The first batch that the model accepts is used; if it accepts none, a ConfigError is raised. The module is changed;
    the caller's random state is not.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training gives these warnings again
        batch, expected = _in_own_layout(module, batches, loss)
        try:
            differing = _differing(_passes(FlatModule(module, channels_last=True), batch, loss), expected)
        except Exception as error:  # code of the user's own
            return in_a_line(error)
        if differing and _same_in_float64(module, batch, loss):
            return ""
    return differing and f"its {differing} differ"


def _same_in_float64(module: nn.Module, batch: Batch, loss: Loss) -> bool:
    """Whether the difference is only rounding, which a deep model may amplify a thousand times."""
    exact = torch.float64
    inputs, targets = (part.to(exact) if part.is_floating_point() else part for part in batch)
    try:
        module.to(exact)
        ours, theirs = (_passes(FlatModule(module, which, exact), (inputs, targets), loss) for which in (False, True))
        return not _differing(ours, theirs)
    except Exception:  # code of the user's own that insists on float32
        return False


def _in_own_layout(module: nn.Module, batches: Sequence[Batch], loss: Loss) -> tuple[Batch, list[_Pass]]:
    """The first batch that the model accepts in PyTorch's own layout, and its results."""
    bound = FlatModule(module)
    for batch in batches[:-1]:
        try:
            return batch, _passes(bound, batch, loss)
        except Exception:  # the model may want batches of its usual size
            continue
    batch = batches[-1]
    try:
        return batch, _passes(bound, batch, loss)
    except Exception as error:
        shape = tuple(batch[0].shape)
        raise ConfigError(f"model: raised {in_a_line(error)} on a batch of shape {shape}") from error


def _passes(bound: FlatModule, batch: Batch, loss: Loss) -> list[_Pass]:
    """One pass as in training, but without dropout, and one as in evaluation.

    Gradients are those of the first pass, or, if it drew random numbers, of the second.
    """
    module, initial = bound.module, bound.collect()
    try:
        module.train()
        for part in module.modules():
            if isinstance(part, Dropout):
                part.eval()
        training = _pass(bound, batch, loss, backward=True)
        bound.load(initial)
        module.eval()
        return [training, _pass(bound, batch, loss, backward=training.drew)]
    finally:
        bound.load(initial)


def _pass(bound: FlatModule, batch: Batch, loss: Loss, backward: bool) -> _Pass:
    layout, (inputs, targets) = bound.layout, batch
    torch.manual_seed(0)
    before = torch.get_rng_state()
    gradients: list[Tensor] = []
    with torch.set_grad_enabled(backward):
        outputs = bound.module(layout.laid_out(inputs))
        value = loss(outputs, targets)
    if backward and (bound.module.training or value.requires_grad):
        gradients = bound.gradients(value)
    drew = not torch.equal(before, torch.get_rng_state())
    tensors = [leaf.detach() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    buffers = list(layout.views(*layout.parts(bound.collect())).values())[layout.num_parameter_tensors :]
    return _Pass(tensors, gradients, buffers, drew)


def _differing(ours: list[_Pass], theirs: list[_Pass]) -> str:
    """What differs by more than rounding; empty if nothing does."""
    for one, other in zip(ours, theirs, strict=True):
        if not (one.drew or other.drew):
            for kind in ("outputs", "gradients", "buffers"):
                if _differ(getattr(one, kind), getattr(other, kind)):
                    return kind
    return ""


def _differ(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return True
    lengths = [float(tensor.norm()) for tensor in theirs]
    whole = sum(length**2 for length in lengths) ** 0.5
    return not all(
        float((one - other).norm()) <= LARGEST_ERROR * length + NEGLIGIBLE * whole
        for one, other, length in zip(ours, theirs, lengths, strict=True)
    )
