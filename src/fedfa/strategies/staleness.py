"""Staleness functions s(tau), as defined by FedAsync (Xie et al., 2019, arXiv:1903.03934, section 5.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedfa.errors import check, require


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
_BY_NAME: dict[str, type[ConstantStaleness | PolynomialStaleness | HingeStaleness]] = {
    "constant": ConstantStaleness,
    "polynomial": PolynomialStaleness,
    "hinge": HingeStaleness,
}


def staleness_function(spec: Staleness | dict[str, Any] | Callable[[int], float]) -> Callable[[int], float]:
    """A name (with the paper's constants), a table such as ``{kind = "hinge", a = 10, b = 4}``, or a function."""
    if isinstance(spec, str):
        check(spec in _BY_NAME, "staleness", spec, f"must be one of {', '.join(_BY_NAME)}")
        return _BY_NAME[spec]()
    if isinstance(spec, dict):
        settings = {key: value for key, value in spec.items() if key != "kind"}
        kind = _BY_NAME.get(spec.get("kind", ""))
        check(kind is not None, "staleness", spec, f"kind must be one of {', '.join(_BY_NAME)}")
        try:
            return kind(**settings)  # pyright: ignore[reportOptionalCall]
        except TypeError as error:
            check(False, "staleness", spec, f"{error}")
    check(callable(spec), "staleness", spec, "must be a name, a table or a function of tau")
    return spec  # pyright: ignore[reportReturnType]
