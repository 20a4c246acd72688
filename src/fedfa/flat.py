"""A neural network as one flat vector: all trainable parameters, then the floating-point buffers.

Frozen parameters and integer buffers (such as BatchNorm's batch counter) stay in the module and never travel.
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
        return torch.cat([state[name].detach().reshape(-1) for name in self.names])

    def views(self, params: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """The module's tensors as views of the two parts of a flat vector."""
        count = self.num_parameter_tensors
        parts = params.split(self.sizes[:count])
        if count < len(self.sizes):
            parts += buffers.split(self.sizes[count:])
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def bind(self, module: nn.Module, flat: Tensor, gradient: Tensor) -> None:
        """Make the module live in ``flat``, and its gradients in ``gradient``: one copy loads a whole model."""
        views = self.views(flat[: self.num_trainable], flat[self.num_trainable :])
        gradients = gradient.split(self.sizes[: self.num_parameter_tensors])
        for position, (name, view) in enumerate(views.items()):
            owner_name, _, leaf = name.rpartition(".")
            owner = module.get_submodule(owner_name)
            if position < self.num_parameter_tensors:
                parameter = owner.get_parameter(leaf)
                parameter.data = view
                parameter.grad = gradients[position].view(view.shape)
            else:
                owner._buffers[leaf] = view
