"""A neural network as one flat vector: all trainable parameters, then the floating-point buffers.

Frozen parameters and integer buffers (such as BatchNorm's batch counter) stay in the module and never travel. Weights
of 2-d convolutions lie channels last, as convolutions like them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfa.errors import require


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a module lies in its flat vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    sizes: tuple[int, ...]
    num_parameter_tensors: int

    @property
    def num_trainable(self) -> int:
        return sum(self.sizes[: self.num_parameter_tensors])

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        persistent = module.state_dict().keys()
        parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        buffers = [(name, b) for name, b in module.named_buffers() if name in persistent and b.is_floating_point()]
        require(len(parameters) > 0, "model: has no trainable parameter")
        parameters, buffers = (sorted(part, key=_odd_size) for part in (parameters, buffers))
        for name, tensor in parameters + buffers:
            require(
                tensor.dtype == torch.float32,
                f"model: {name} is {tensor.dtype}; make trainable parameters and buffers float32",
            )
        tensors = parameters + buffers
        return cls(
            names=tuple(name for name, _ in tensors),
            shapes=tuple(tensor.shape for _, tensor in tensors),
            sizes=tuple(tensor.numel() for _, tensor in tensors),
            num_parameter_tensors=len(parameters),
        )

    def pack(self, module: nn.Module) -> Tensor:
        """A new flat vector with the module's present values."""
        state = module.state_dict()
        return torch.cat([flattened(state[name].detach()) for name in self.names])

    def resting(self, module: nn.Module) -> dict[str, Tensor]:
        """Copies of the buffers that do not travel."""
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
        return {name: shaped(part, shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}


def _odd_size(named: tuple[str, Tensor]) -> tuple[bool, int]:
    """Orders tensors so that the addresses of (almost) all are multiples of 16 bytes, which GPU libraries rely on."""
    return named[1].numel() % 4 != 0, -named[1].dim()


def flattened(tensor: Tensor) -> Tensor:
    """A tensor as it lies in the flat vector."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def shaped(part: Tensor, shape: torch.Size) -> Tensor:
    """A part of the flat vector as the tensor it holds."""
    if len(shape) != 4:
        return part.view(shape)
    outputs, inputs, height, width = shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


class FlatModule:
    """A module that lives in one flat vector: loading a model is one copy, and gradients come as one vector.

    A model may replace a buffer instead of writing into it, and may count in buffers that do not travel: neither must
    carry over from one client to the next: ``load`` puts every buffer back, and ``collect`` fetches what was replaced.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = layout = Layout.of(module)
        vector = layout.pack(module)
        # two tensors, not one: GPU libraries want each part at an even address
        self.trainable, self._buffers = (part.clone() for part in layout.parts(vector))
        self.gradient = torch.zeros_like(self.trainable)
        views = layout.views(self.trainable, self._buffers)
        parameters = dict(module.named_parameters())
        names = layout.names[: layout.num_parameter_tensors]
        for name, part in zip(names, self.gradient.split(layout.sizes[: len(names)]), strict=True):
            parameters[name].data = views[name]
            parameters[name].grad = shaped(part, views[name].shape)
        self._travelling: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        self._resting: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        for name, buffer in module.named_buffers():
            owner, _, leaf = name.rpartition(".")
            home = module.get_submodule(owner)._buffers
            if name in views:
                self._travelling.append((home, leaf, views[name]))
            else:
                self._resting.append((home, leaf, buffer.clone()))
        self.load(vector)

    def load(self, vector: Tensor) -> None:
        for own, part in zip((self.trainable, self._buffers), self.layout.parts(vector), strict=True):
            own.copy_(part)
        for home, leaf, view in self._travelling:
            home[leaf] = view
        for home, leaf, value in self._resting:
            home[leaf] = value.clone()

    def collect(self) -> Tensor:
        """A new flat vector of the present values, with buffers that were replaced."""
        for home, leaf, view in self._travelling:
            current = home[leaf]
            if current is not None and current is not view:
                view.copy_(current.detach())
                home[leaf] = view
        return torch.cat((self.trainable, self._buffers))
