"""Staleness functions s(tau), as defined by FedAsync (Xie et al., 2019, arXiv:1903.03934, section 5.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedfa.errors import require


@dataclass(frozen=True, slots=True)
class ConstantStaleness:
    """s(tau) = 1"""

    kind: Literal["constant"] = "constant"

    def __call__(self, tau: int) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class PolynomialStaleness:
    """s(tau) = (1 + tau)^-a"""

    a: float = 0.5
    kind: Literal["polynomial"] = "polynomial"

    def __post_init__(self) -> None:
        require(self.a >= 0, f"staleness a = {self.a}: must be 0 or more")

    def __call__(self, tau: int) -> float:
        return (1.0 + tau) ** -self.a


@dataclass(frozen=True, slots=True)
class HingeStaleness:
    """s(tau) = 1 while tau <= b, then 1 / (a (tau - b) + 1)"""

    a: float = 10.0
    b: float = 4.0
    kind: Literal["hinge"] = "hinge"

    def __post_init__(self) -> None:
        require(self.a > 0, f"staleness a = {self.a}: must be above 0")
        require(self.b >= 0, f"staleness b = {self.b}: must be 0 or more")

    def __call__(self, tau: int) -> float:
        return 1.0 if tau <= self.b else 1.0 / (self.a * (tau - self.b) + 1.0)


Name = Literal["constant", "polynomial", "hinge"]
Staleness = Name | ConstantStaleness | PolynomialStaleness | HingeStaleness | Callable[[int], float]
"""In TOML a name ("hinge") or a table ({kind = "hinge", a = 10.0, b = 4.0}). To add one: a class, and its name."""


def function_of(staleness: Staleness) -> Callable[[int], float]:
    """The function itself: after its check, a setting is a function."""
    assert callable(staleness)
    return staleness
