"""Models for bf16 computation, kept twice: in float32 for the updates, and as a bf16 copy.

Autocast makes a bf16 copy of every weight in every step, and converts every gradient back. With small batches that is
a large part of a step. Weights that are used in no other way are kept as such copies instead, and the optimizer's step
writes both: the same numbers, with half the memory traffic.
"""

from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from fedfa.learning.flat import Layout
from fedfa.learning.private_torch import TorchDispatchMode, tree_leaves

BLOCK = 4096
"""Numbers that one program of the kernel processes."""


class _Uses(TorchDispatchMode):
    """Records how some tensors are used: to make a bf16 copy, or in another way."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._names = {tensor.data_ptr(): name for name, tensor in tensors.items()}
        self.cast: set[str] = set()
        self.others: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        cast = func is torch.ops.aten._to_copy.default and kwargs.get("dtype") == torch.bfloat16
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, Tensor) and (name := self._names.get(value.data_ptr())):
                (self.cast if cast else self.others).add(name)
        return func(*args, **kwargs)


def only_cast(compute: Callable[[], Any], tensors: Mapping[str, Tensor]) -> set[str]:
    """The tensors that this computation uses only to make a bf16 copy of them."""
    with _Uses(tensors) as uses:
        compute()
    return uses.cast - uses.others


class Descent:
    """Plain gradient descent on a flat float32 model and its bf16 copy at once, from the gradients where they lie."""

    def __init__(self, layout: Layout, reduced: Collection[str], device: str) -> None:
        from fedfa.executors.kernels import descend

        self._kernel: Any = descend
        starts, sizes, owners, firsts, start = [], [], [], [], 0
        for name, size in zip(layout.names[: layout.num_parameter_tensors], layout.sizes, strict=False):
            if name in reduced:
                firsts.append(len(owners))
                owners += [len(starts)] * -(-size // BLOCK)
                starts.append(start)
                sizes.append(size)
            start += size
        self._tables = [torch.tensor(table, device=device) for table in (starts, sizes, owners, firsts)]
        self._blocks = len(owners)

    def __call__(self, addresses: Tensor, model: Tensor, half: Tensor, lr: float) -> None:
        """One step; ``addresses`` says where the gradients of the reduced tensors are."""
        self._kernel[(self._blocks,)](addresses, *self._tables, model, half, lr, BLOCK=BLOCK, num_warps=8)

    @staticmethod
    def possible() -> bool:
        """Triton comes with torch for GPUs, on most systems."""
        return find_spec("triton") is not None
