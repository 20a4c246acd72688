"""Turn a tensor function into one that runs without Python between its operations.

The function is traced once per set of shapes with ``make_fx``, gradients and batching included, and the resulting
list of ATen calls is given to TorchScript's interpreter. On small models most of a local step's time is Python,
autograd bookkeeping and batching rules; the captured function has none of these.
"""

import operator
from collections.abc import Callable
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, fx

from fedfa.errors import in_a_line
from fedfa.learning.private_torch import OpOverload, make_fx, name_of

# Here the inputs decide the device of a value, so these keywords are not needed.
_IMPLIED = {"pin_memory", "layout", "device"}


class CannotCapture(Exception):
    """Why a model's steps cannot be captured."""


def capture(function: Callable[..., Any], *examples: Tensor) -> Callable[..., Any]:
    """The same function for inputs of exactly these shapes. It may change its inputs in place."""
    try:
        with torch.no_grad():
            graph = make_fx(function)(*examples)
        source, constants = _source(graph)
        compiled: Any = torch.jit.CompilationUnit(source).captured
    except Exception as error:  # tracing runs arbitrary user code: whatever it raises means "not this model"
        raise CannotCapture(shorten(in_a_line(error), 100, placeholder=" ...")) from error

    def run(*inputs: Tensor) -> Any:
        with torch.no_grad():
            return compiled(*inputs, *constants)

    return run


def _source(module: fx.GraphModule) -> tuple[str, list[Tensor]]:
    """The graph as TorchScript source, and the tensors it refers to."""
    parameters: list[str] = []
    constants: dict[str, Tensor] = {}
    lines: list[str] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            parameters.append(f"{node.name}: Tensor")
        elif node.op == "get_attr":
            constants[node.name] = getattr(module, node.target)
        elif node.op == "output":
            lines.append(f"return {_literal(node.args[0])}")
        elif node.target is operator.getitem:
            lines.append(f"{node.name} = {_literal(node.args[0])}[{node.args[1]}]")
        elif isinstance(node.target, OpOverload):
            namespace, name = name_of(node.target)
            arguments = [_literal(argument) for argument in node.args]
            arguments += [f"{key}={_literal(value)}" for key, value in node.kwargs.items() if key not in _IMPLIED]
            lines.append(f"{node.name} = torch.ops.{namespace}.{name}({', '.join(arguments)})")
        else:
            raise CannotCapture(f"operation {node.target}")
    parameters += [f"{name}: Tensor" for name in constants]
    body = "\n".join(f"    {line}" for line in lines)
    return f"def captured({', '.join(parameters)}):\n{body}\n", list(constants.values())


def _literal(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float('{value}')"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format):
        return str(value)
    raise CannotCapture(f"a constant of type {type(value).__name__}")
