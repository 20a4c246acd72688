"""Turn a tensor function into one that runs without Python between its operations.

The function runs once under a recorder, which writes down every ATen call that it makes, gradients and batching
included. The list of calls becomes a TorchScript function. On small models most of a local step's time is Python and
autograd bookkeeping; the captured function makes the same calls with the same kernels, so its results have the same
bits.

Batches differ in size. So a function is recorded with two batch sizes, and every whole number that differs between the
two recordings becomes an expression of the size.
"""

from collections.abc import Callable, Mapping, Sequence
from textwrap import indent, shorten
from typing import Any

import torch
from torch import Tensor

from fedfa.errors import in_a_line
from fedfa.learning.private_torch import OpOverload, TorchDispatchMode, as_written, name_of

_IMPLIED = {"pin_memory", "layout", "device"}
"""Keywords that are not needed: the inputs decide the device of a value."""
_LOOKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operations whose result Python may look at: the next recording could take another way."""

Step = Callable[[Tensor], object]
"""Does one local step on the examples at these positions, and changes tensors in place."""


class CannotCapture(Exception):
    """Why a model's steps cannot be captured."""


class Recording(TorchDispatchMode):
    """The ATen calls of everything that runs while it is entered, in terms of some named inputs.

    ``lines`` have ``{}`` for each whole number; ``numbers`` has these in order. ``constants`` are tensors that were
    there before, by name: the model's own, which are read and written where they are. With ``hoist``, views of
    constants are constants, too; that is wrong where they follow the size of a batch.
    """

    def __init__(self, inputs: Mapping[str, Tensor], hoist: bool = True) -> None:
        super().__init__()
        self._hoist = hoist
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.constants: dict[str, Tensor] = {}
        self._kept: list[Tensor] = []  # while a tensor is kept, no other one gets its id or its memory
        self._names: dict[int, str] = {}
        self._views: dict[Any, str] = {}
        for name, tensor in inputs.items():
            self._name(tensor, name)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first call imports torch's compiler, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload) or (_LOOKS.intersection(func.tags) and not _by_position(func, args)):
            raise CannotCapture(f"operation {func}, whose result Python may look at")
        found = func(*args, **kwargs)
        if func.is_view and isinstance(found, Tensor) and self._is_known(found, args[0]):
            return found
        namespace, name = name_of(func)
        if name == "lift_fresh":  # a constant of the function's own code, which it might change in place
            name = "clone"
        arguments = [self.literal(value) for value in args]
        arguments += [f"{key}={self.literal(value)}" for key, value in kwargs.items() if key not in _IMPLIED]
        call = f"torch.ops.{namespace}.{name}({', '.join(arguments)})"
        if isinstance(found, Tensor):
            if id(found) in self._names:  # in place
                self.lines.append(call)
            else:
                self.lines.append(f"{self._new(found)} = {call}")
        elif isinstance(found, tuple | list):
            whole = f"r{len(self.lines)}"
            self.lines.append(f"{whole} = {call}")
            for place, part in enumerate(found):
                if isinstance(part, Tensor):
                    self.numbers.append(place)
                    self.lines.append(f"{self._new(part)} = {whole}[{{}}]")
        elif found is not None:
            raise CannotCapture(f"operation {func}, which makes a {type(found).__name__}")
        else:
            self._keep(call, arguments)
        return found

    def _keep(self, call: str, arguments: list[str]) -> None:
        """A call without a result. TorchScript leaves it out, unless something that it may change is used later."""
        lists = {f"l{len(self.lines)}_{place}": text for place, text in enumerate(arguments) if text.startswith("[t")}
        lists |= {f"l{len(self.lines)}_{place}": text for place, text in enumerate(arguments) if text.startswith("[c")}
        for name, text in lists.items():
            call = call.replace(text, name, 1)
        self.lines += [*(f"{name} = {text}" for name, text in lists.items()), call]
        self.lines += [f"kept += len({name})" for name in lists]

    def _is_known(self, view: Tensor, original: Tensor) -> bool:
        """Whether a view needs no operation: it is a tensor that has a name, or a view of a constant."""
        same = self._views.get(_place(view))
        name = self.literal(original)
        if same is None and self._hoist and name in self.constants:
            self.literal(view)
        elif same is not None:
            self._name(view, same)
        return id(view) in self._names

    def _new(self, tensor: Tensor) -> str:
        return self._name(tensor, f"t{len(self._kept)}")

    def _name(self, tensor: Tensor, name: str) -> str:
        self._names[id(tensor)] = name
        self._views.setdefault(_place(tensor), name)
        self._kept.append(tensor)
        return name

    def literal(self, value: Any) -> str:
        """A value as TorchScript source."""
        if isinstance(value, Tensor):
            if id(value) not in self._names:
                self.constants[self._name(value, f"c{len(self.constants)}")] = value
            return self._names[id(value)]
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.literal, value))}]"
        if isinstance(value, int) and not isinstance(value, bool):
            self.numbers.append(int(value))
            return "{}"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        if isinstance(value, str):
            return repr(value).replace("{", "{{").replace("}", "}}")
        if value is None or isinstance(value, bool | float):
            return repr(value)
        if isinstance(value, torch.dtype | torch.memory_format):
            return str(value)
        raise CannotCapture(f"a constant of type {type(value).__name__}")


def capture(function: Callable[..., Any], *examples: Tensor) -> Callable[..., Any]:
    """The same function for inputs of exactly these shapes. It may change tensors in place, its inputs and others."""
    inputs = {f"x{number}": tensor for number, tensor in enumerate(examples)}
    recording = Recording(inputs)
    result = _recorded(recording, lambda: function(*examples))
    body = [*recording.lines, f"return {recording.literal(result)}"]
    source = "\n".join(body).format(*recording.numbers)
    return _compiled([f"{name}: Tensor" for name in inputs], source, recording.constants)


def capture_times(step: Callable[..., Any], *examples: Tensor) -> Callable[..., Any]:
    """A function that does a step so many times on the same inputs; the step changes tensors in place."""
    inputs = {f"x{number}": tensor for number, tensor in enumerate(examples)}
    recording = Recording(inputs)
    _recorded(recording, lambda: step(*examples))
    body = "\n".join(recording.lines).format(*recording.numbers)
    source = f"kept = 0\nfor i in range(times):\n{indent(body, '    ')}\nreturn kept"
    return _compiled(["times: int", *(f"{name}: Tensor" for name in inputs)], source, recording.constants)


def capture_loop(step: Step, batches: Sequence[Tensor]) -> Callable[[Tensor, list[int]], None]:
    """A function that does a step for each row of a table of positions; of each row only the first so many count.

    ``batches`` are one or two batches to record with. Two must differ in size; then all sizes are possible.
    """
    try:
        return _loop_of([_step_of(step, batch, hoist=True) for batch in batches], batches)
    except CannotCapture:
        return _loop_of([_step_of(step, batch, hoist=False) for batch in batches], batches)


def _step_of(step: Step, batch: Tensor, hoist: bool) -> Recording:
    recording = Recording({"rows": batch}, hoist)
    _recorded(recording, lambda: step(batch))
    return recording


def _loop_of(recordings: Sequence[Recording], batches: Sequence[Tensor]) -> Callable[[Tensor, list[int]], None]:
    first, last = recordings[0], recordings[-1]
    if first.lines != last.lines or len(first.numbers) != len(last.numbers):
        raise CannotCapture("batches of different sizes make different operations")
    if not all(map(_same_constant, first.constants.values(), last.constants.values())):
        raise CannotCapture("batches of different sizes use different tensors")
    numbers = first.numbers
    if len(recordings) > 1:
        numbers = [_of_size(*pair, *map(len, batches)) for pair in zip(first.numbers, last.numbers, strict=True)]
    body = "\n".join(first.lines).format(*numbers)
    loop = "for i in range(len(sizes)):\n    n = sizes[i]\n    rows = table.select(0, i).narrow(0, 0, n)\n"
    source = f"kept = 0\n{loop}{indent(body, '    ')}\nreturn kept"
    return _compiled(["table: Tensor", "sizes: List[int]"], source, first.constants)


def _recorded(recording: Recording, work: Callable[[], Any]) -> Any:
    try:
        with torch.no_grad(), recording:
            return work()
    except CannotCapture:
        raise
    except Exception as error:  # code of the user's own: whatever it raises means "not this model"
        raise CannotCapture(shorten(in_a_line(error), 100, placeholder=" ...")) from error


def _of_size(one: int, other: int, size: int, larger: int) -> str:
    """A number that was ``one`` and ``other`` with batches of these sizes, as an expression of the size ``n``."""
    if one == other:
        return str(one)
    times, rest = divmod(other - one, larger - size)
    if rest:
        raise CannotCapture(f"a shape that is {one} for {size} examples and {other} for {larger}")
    return f"({times} * n + {one - times * size})"


def _same_constant(one: Tensor, other: Tensor) -> bool:
    """Whether it is one of the model's own tensors, or a constant of the function's own code, made anew each time."""
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))


def _place(tensor: Tensor) -> Any:
    """Two tensors of the same place are one: the same numbers in the same memory."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _by_position(func: OpOverload, args: Any) -> bool:
    """Whether this is an indexing whose result has the same shape for all values: by positions, not by a mask."""
    positions = [index for index in args[1] if index is not None] if name_of(func)[1] == "index" else []
    return bool(positions) and all(index.dtype not in (torch.bool, torch.uint8) for index in positions)


def _compiled(parameters: list[str], body: str, constants: Mapping[str, Tensor]) -> Callable[..., Any]:
    parameters = parameters + [f"{name}: Tensor" for name in constants]
    source = f"def captured({', '.join(parameters)}):\n{indent(body, '    ')}\n"
    try:
        compiled: Any = torch.jit.CompilationUnit(source).captured
    except Exception as error:  # an operation that TorchScript does not know
        raise CannotCapture(shorten(in_a_line(error), 100, placeholder=" ...")) from error
    fixed = list(constants.values())

    def run(*inputs: Any) -> Any:
        try:
            with torch.no_grad(), as_written():  # TorchScript's optimiser would add numbers in another order
                return compiled(*inputs, *fixed)
        except Exception as error:
            raise CannotCapture(in_a_line(error)) from error

    return run
