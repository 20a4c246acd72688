"""A neural network as one flat vector: all trainable parameters, then the floating-point buffers.

Frozen parameters and integer buffers (such as BatchNorm's batch counter) stay in the module and are never sent. In the
vector, tensors have PyTorch's layout, or 4-d ones are channels last, which makes convolutions faster.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedfa.errors import require
from fedfa.learning.private_torch import own_tensors


@dataclass(frozen=True)
class Layout:
    """The position of each tensor of a module in its flat vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    sizes: tuple[int, ...]
    num_parameter_tensors: int
    channels_last: bool = False
    """4-d tensors, and 4-d inputs, are channels last."""

    @property
    def num_trainable(self) -> int:
        return sum(self.sizes[: self.num_parameter_tensors])

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @classmethod
    def of(cls, module: nn.Module, channels_last: bool = False, dtype: torch.dtype = torch.float32) -> "Layout":
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            known = not nn.parameter.is_lazy(tensor)
            require(known, f"model: {name} has no shape yet; run a batch through the model before returning it")
        persistent = module.state_dict().keys()
        parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        buffers = [(name, b) for name, b in module.named_buffers() if name in persistent and b.is_floating_point()]
        require(len(parameters) > 0, "model: has no trainable parameter")
        parameters, buffers = (sorted(part, key=_odd_size) for part in (parameters, buffers))
        for name, tensor in parameters + buffers:
            require(
                tensor.dtype == dtype,
                f"model: {name} is {tensor.dtype}; make trainable parameters and buffers float32",
            )
        tensors = parameters + buffers
        return cls(
            names=tuple(name for name, _ in tensors),
            shapes=tuple(tensor.shape for _, tensor in tensors),
            sizes=tuple(tensor.numel() for _, tensor in tensors),
            num_parameter_tensors=len(parameters),
            channels_last=channels_last,
        )

    @property
    def plain(self) -> "Layout":
        """The same tensors in PyTorch's layout."""
        return replace(self, channels_last=False)

    @property
    def permutes(self) -> bool:
        """The layout differs from ``plain``."""
        return self.channels_last and self.has_images

    @property
    def has_images(self) -> bool:
        """Some tensor is 4-d, so that channels last makes a difference."""
        return any(len(shape) == 4 for shape in self.shapes)

    def converted(self, vector: Tensor, other: "Layout") -> Tensor:
        """A flat vector of this layout in another layout of the same tensors; the same vector if they agree."""
        if self.channels_last == other.channels_last or not self.has_images:
            return vector
        found = torch.empty_like(vector)
        theirs = other.views(*other.parts(found))
        for name, view in self.views(*self.parts(vector)).items():
            theirs[name].copy_(view)
        return found

    def laid_out(self, inputs: Tensor) -> Tensor:
        """Inputs in the form for a model of this layout. Channels-last images are a third faster on a CPU."""
        if not self.channels_last or inputs.dim() != 4:
            return inputs
        return inputs.contiguous(memory_format=torch.channels_last)

    def flattened(self, tensor: Tensor) -> Tensor:
        """A tensor in the order of the flat vector."""
        return (tensor.permute(0, 2, 3, 1) if self.channels_last and tensor.dim() == 4 else tensor).reshape(-1)

    def joined(self, tensors: Iterable[Tensor]) -> Tensor:
        """A new flat vector of these tensors, which come in the layout's order."""
        return torch.cat([self.flattened(tensor) for tensor in tensors])

    def shaped(self, part: Tensor, shape: torch.Size) -> Tensor:
        """A part of the flat vector as a tensor."""
        if not self.channels_last or len(shape) != 4:
            return part.view(shape)
        outputs, inputs, height, width = shape
        return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)

    def pack(self, module: nn.Module) -> Tensor:
        """A new flat vector with the module's present values."""
        state = module.state_dict()
        return self.joined(state[name].detach() for name in self.names)

    def resting(self, module: nn.Module) -> dict[str, Tensor]:
        """Copies of the buffers that are not sent."""
        return {name: buffer.clone() for name, buffer in module.named_buffers() if name not in self.names}

    def parts(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and buffers of a flat vector."""
        return vector[: self.num_trainable], vector[self.num_trainable :]

    def views(self, params: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """The module's tensors as views of the two parts of a flat vector."""
        count = self.num_parameter_tensors
        parts = params.split(self.sizes[:count])
        if count < len(self.sizes):
            parts += buffers.split(self.sizes[count:])
        return {
            name: self.shaped(part, shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


def _odd_size(named: tuple[str, Tensor]) -> tuple[bool, int]:
    """Sorts tensors so that the addresses of (almost) all are multiples of 16 bytes, as GPU libraries expect."""
    return named[1].numel() % 4 != 0, -named[1].dim()


def homes(module: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter and buffer, by its first name; a shared one has several names."""
    names: dict[int, list[str]] = defaultdict(list)
    for owner, part in module.named_modules():
        parameters, buffers = own_tensors(part)
        for leaf, tensor in (*parameters.items(), *buffers.items()):
            if tensor is not None:
                names[id(tensor)].append(f"{owner}.{leaf}" if owner else leaf)
    return {first: [first, *others] for first, *others in names.values()}


def frozen(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not trained."""
    return [parameter for parameter in module.parameters() if not parameter.requires_grad]


class Stateless:
    """A module as a function of its tensors.

    ``functional_call`` looks for shared tensors itself, but if a whole module is used twice, it does not restore the
    module's own tensors. So it gets every name explicitly.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module, self._names = module, homes(module)

    def __call__(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> Any:
        """The module's output with these tensors, by their first names, instead of its own."""
        return functional_call(self._module, self._all(tensors), (inputs,), tie_weights=False)

    def replaced(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> str:
        """A buffer that the module replaces instead of writing into it, which would be lost; empty if there is none."""
        given = self._all(tensors)
        before = dict(given)
        functional_call(self._module, given, (inputs,), tie_weights=False)  # leaves the module's last tensors in it
        return next((name for name in given if given[name] is not before[name]), "")

    def _all(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for first, tensor in tensors.items() for name in self._names[first]}


class FlatModule:
    """A module that lives in one flat vector: loading a model is one copy.

    A model may replace a buffer instead of writing into it, and may count in buffers that are not sent. Neither may
    carry over from one client to the next: ``load`` restores every buffer, and ``collect`` reads replaced ones. Every
    tensor of the module stays where it is in memory.
    """

    def __init__(self, module: nn.Module, channels_last: bool = False, dtype: torch.dtype = torch.float32) -> None:
        self.module = module
        self.layout = layout = Layout.of(module, channels_last, dtype)
        # two tensors, not one: GPU libraries want each part at an even address
        self.trainable, self._buffers = (part.clone() for part in layout.parts(layout.pack(module)))
        views = layout.views(self.trainable, self._buffers)
        parameters = dict(module.named_parameters())
        self.leaves = [parameters[name] for name in layout.names[: layout.num_parameter_tensors]]
        """The trainable parameters, in the layout's order."""
        for name, leaf in zip(layout.names, self.leaves, strict=False):
            leaf.data = views[name]
        self._travelling: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        self._resting: list[tuple[dict[str, Tensor | None], str, Tensor, Tensor]] = []
        names_of = homes(module)
        for first, buffer in list(module.named_buffers()):
            value = views[first] if first in views else buffer.clone()
            for name in names_of[first]:
                owner, _, leaf = name.rpartition(".")
                _, home = own_tensors(module.get_submodule(owner))
                home[leaf] = value
                if first in views:
                    self._travelling.append((home, leaf, value))
                else:
                    self._resting.append((home, leaf, value, buffer.clone()))

    def load(self, vector: Tensor) -> None:
        for own, part in zip((self.trainable, self._buffers), self.layout.parts(vector), strict=True):
            own.copy_(part)
        for home, leaf, view in self._travelling:
            home[leaf] = view
        for home, leaf, value, initial in self._resting:
            home[leaf] = value.copy_(initial)

    def collect(self) -> Tensor:
        """A new flat vector of the present values, with buffers that were replaced."""
        for home, leaf, view in self._travelling:
            current = home[leaf]
            if current is not None and current is not view:
                view.copy_(current.detach())
                home[leaf] = view
        return torch.cat((self.trainable, self._buffers))

    def replaced(self) -> str:
        """A buffer that the module has replaced since ``load``; empty if there is none."""
        return next((leaf for home, leaf, value in self._buffers_at_home() if home[leaf] is not value), "")

    def put_back(self) -> None:
        """Undo such replacements, whatever the values are."""
        for home, leaf, value in self._buffers_at_home():
            home[leaf] = value

    def _buffers_at_home(self) -> list[tuple[dict[str, Tensor | None], str, Tensor]]:
        return [*self._travelling, *(entry[:3] for entry in self._resting)]

    def changed_at_rest(self) -> str:
        """A buffer that is not sent and was written to since ``load``; empty if there is none."""
        return next((leaf for _, leaf, value, initial in self._resting if not torch.equal(value, initial)), "")

    def rests_like(self, other: nn.Module) -> bool:
        """Whether another module has the same values where nothing is trained: frozen parameters, buffers at rest."""
        resting = self.layout.resting(other).values()
        ours = [*frozen(self.module), *(initial for *_, initial in self._resting)]
        theirs = [*frozen(other), *resting]
        return len(ours) == len(theirs) and all(
            torch.equal(one.to(two.device), two) for one, two in zip(ours, theirs, strict=True)
        )

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that training changes."""
        return [self.trainable, self._buffers, *(value for _, _, value, _ in self._resting)]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The gradient of each trainable parameter."""
        for leaf in self.leaves:
            leaf.grad = None
        loss.backward()
        found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self.leaves]
        for leaf in self.leaves:
            leaf.grad = None
        return found
