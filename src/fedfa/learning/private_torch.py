"""Everything that this package uses of torch beyond its public interface, in one place.

Torch may change these names in any release. ``tests/learning/test_private_torch.py`` shows which one broke, and how.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload as OpOverload
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_leaves as tree_leaves

Dropout: Any = nn.modules.dropout._DropoutNd
"""The base of all dropout modules, which have a probability ``p``."""
NormWithStatistics: Any = nn.modules.batchnorm._NormBase
"""The base of all modules with running statistics, which have a ``momentum`` and may count their batches."""


def is_batched(tensor: Tensor) -> bool:
    """Whether ``vmap`` is applied to this tensor."""
    return torch._C._functorch.is_batchedtensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]


def is_transformed(tensor: Tensor) -> bool:
    """Whether any of torch.func's transformations is applied to this tensor."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]


def own_tensors(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The module's own parameters and buffers, in the dictionaries in which it keeps them."""
    return module._parameters, module._buffers


def seed_cpu(seed: int) -> None:
    """``torch.manual_seed`` for the CPU alone: without a GPU, that one writes the whole stack down each time."""
    torch.default_generator.manual_seed(seed)


def as_written() -> AbstractContextManager[None]:
    """TorchScript runs operations as they are written, without rewriting them."""
    return torch.jit.optimized_execution(False)  # pyright: ignore[reportPrivateImportUsage]


def name_of(operation: OpOverload) -> tuple[str, str]:
    """Namespace and name of an ATen operation."""
    namespace, name = operation._schema.name.split("::")
    return namespace, name


def fused_adamw(
    params: Tensor, gradient: Tensor, first: Tensor, second: Tensor, count: Tensor, *, lr: float,
    betas: tuple[float, float], weight_decay: float, epsilon: float,
) -> None:  # fmt: skip
    """One step of AdamW in place, in one pass over memory; ``count`` holds the number of steps, this one included."""
    torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
        [params], [gradient], [first], [second], [], [count], lr=lr, beta1=betas[0], beta2=betas[1],
        weight_decay=weight_decay, eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip


def descend(params: list[Tensor], gradients: list[Tensor], lr: float) -> None:
    """``param -= lr * gradient`` for all of them at once."""
    torch._foreach_add_(params, gradients, alpha=-lr)  # pyright: ignore[reportPrivateImportUsage]


def compile_graph(function: Callable[..., Any], *examples: Tensor) -> Callable[..., Any]:
    """This function, which changes tensors in place, as compiled C++. Its inputs may have another length later."""
    import torch._inductor as inductor  # all of these take seconds
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    fake = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    inputs: list[Any] = []
    for tensor in examples:
        sizes = [DimDynamic.DYNAMIC] + [DimDynamic.STATIC] * (tensor.dim() - 1)
        inputs.append(fake.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes)))
    # Else it keeps processes for compiling, and an error in a parallel loop ends this process.
    alone = config.patch({"compile_threads": 1, "cpp.threads": 1})
    with torch.no_grad(), alone, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about itself
        compiled: Any = inductor.compile(make_fx(function)(*inputs), inputs)
    return compiled
