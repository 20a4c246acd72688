"""The device and the precision of computations."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedfa.errors import check, require

DeviceName = Literal["auto", "cpu", "cuda"]
PrecisionName = Literal["auto", "fp32", "tf32", "bf16"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and the arithmetic to use on it.

    fp32 repeats bit for bit. tf32 rounds the factors of matrix products and convolutions, bf16 also their results
    (models stay float32). On a GPU both let the library choose its fastest algorithms, which may differ between runs.
    """

    kind: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"

    @classmethod
    def of(cls, device: str = "auto", precision: str = "auto", elsewhere: bool = False) -> "Device":
        """``auto``: the GPU where there is one, with bf16; else the CPU with fp32, as not every CPU computes in bf16.

        ``elsewhere``: computing happens on other machines, so this one needs no GPU.
        """
        check(device in ("auto", "cpu", "cuda"), "device", device, "must be auto, cpu or cuda")
        check(
            precision in ("auto", "fp32", "tf32", "bf16"),
            "precision",
            precision,
            "must be auto, fp32, tf32 or bf16",
        )
        there = torch.cuda.is_available() or (elsewhere and device == "cuda")
        require(device != "cuda" or there, "device = 'cuda': no GPU that torch can use; set device = 'cpu'")
        if device == "cpu" or not there:
            require(precision != "tf32", "precision = 'tf32': the CPU computes in fp32 or bf16")
            return cls("cpu", "bf16" if precision == "bf16" else "fp32")
        return cls("cuda", "bf16" if precision == "auto" else precision)  # pyright: ignore[reportArgumentType]

    def put(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.kind)

    def vector(self, array: np.ndarray) -> Any:
        """A flat model in this device's form: strategies accept numpy arrays and tensors."""
        return array if self.kind == "cpu" else torch.from_numpy(array).to(self.kind)

    def free_share(self) -> float:
        """The share of a GPU's memory that is free; of a machine's, 1."""
        if self.kind == "cpu":
            return 1.0
        free, total = torch.cuda.mem_get_info()
        return free / total

    def computing(self) -> AbstractContextManager[Any]:
        """Around a model's forward pass."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.kind, torch.bfloat16, cache_enabled=False)

    @staticmethod
    def front() -> torch.cuda.Stream:
        """The GPU's stream for the server's own work, with priority over the clients' training."""
        return _front()

    def in_front(self) -> AbstractContextManager[Any]:
        """Around the server's own work."""
        return nullcontext() if self.kind == "cpu" else torch.cuda.stream(_front())

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Around a run: sets torch's switches for the precision, and restores them afterwards."""
        if self.kind == "cpu":
            yield
            return
        cudnn: Any = torch.backends.cudnn
        matmul: Any = torch.backends.cuda.matmul
        exact = self.precision == "fp32"
        before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
        cudnn.benchmark, cudnn.deterministic = not exact, exact
        cudnn.allow_tf32 = matmul.allow_tf32 = not exact
        torch.cuda.synchronize()
        try:
            with self.in_front():
                yield
        finally:
            torch.cuda.synchronize()
            cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before


@cache
def _front() -> torch.cuda.Stream:
    return torch.cuda.Stream(priority=-1)


CPU = Device()


def as_array(vector: Any) -> np.ndarray:
    """A flat model as a numpy array, wherever it is kept."""
    return vector.cpu().numpy() if isinstance(vector, Tensor) else vector
