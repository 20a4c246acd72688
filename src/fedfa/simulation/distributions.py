"""Distributions of seconds, or bytes per second, over clients: each client gets the value at its own draw in (0, 1)."""

import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, get_args

from fedfa.errors import ConfigError, check, require


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number for every client."""

    value: float = 1.0
    kind: Literal["constant"] = "constant"

    def __post_init__(self) -> None:
        check(self.value > 0, "value", self.value, "must be above 0")

    def at(self, u: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform between two numbers."""

    low: float = 1.0
    high: float = 10.0
    kind: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        require(0 < self.low <= self.high, f"low = {self.low}, high = {self.high}: must be 0 < low <= high", "low")

    def at(self, u: float) -> float:
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A fixed part plus an exponential one: ``shift + Exp(mean)``. The default is the paper-like long tail."""

    shift: float = 3.0
    mean: float = 5.0
    kind: Literal["exponential"] = "exponential"

    def __post_init__(self) -> None:
        require(self.shift >= 0 < self.mean, f"shift = {self.shift}, mean = {self.mean}: must be >= 0 and > 0", "shift")

    def at(self, u: float) -> float:
        return self.shift - self.mean * math.log1p(-u)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(N(ln median, sigma^2))."""

    median: float = 5.0
    sigma: float = 0.75
    kind: Literal["lognormal"] = "lognormal"

    def __post_init__(self) -> None:
        check(self.median > 0, "median", self.median, "must be above 0")
        check(0 <= self.sigma <= 10, "sigma", self.sigma, "must be between 0 and 10")

    def at(self, u: float) -> float:
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(u))


@dataclass(frozen=True, slots=True)
class Pareto:
    """Pareto with a cap: ``min(cap, scale u^(-1/shape))``."""

    scale: float = 3.0
    shape: float = 1.5
    cap: float = 60.0
    kind: Literal["pareto"] = "pareto"

    def __post_init__(self) -> None:
        check(self.scale > 0, "scale", self.scale, "must be above 0")
        check(self.shape >= 0.1, "shape", self.shape, "must be at least 0.1")
        check(self.cap >= self.scale, "cap", self.cap, f"must be at least scale = {self.scale}")

    def at(self, u: float) -> float:
        return min(self.cap, self.scale * (1.0 - u) ** (-1.0 / self.shape))


@dataclass(frozen=True, slots=True)
class Zipf:
    """``scale * rank``, rank r in 1..ranks with probability ~ r^-exponent."""

    scale: float = 3.0
    exponent: float = 1.5
    ranks: int = 20
    kind: Literal["zipf"] = "zipf"

    def __post_init__(self) -> None:
        require(
            self.scale > 0 and self.exponent >= 0,
            f"scale = {self.scale}, exponent = {self.exponent}: too small",
            "scale",
        )
        check(self.ranks >= 1, "ranks", self.ranks, "must be at least 1")

    def at(self, u: float) -> float:
        edges = _zipf_edges(self.exponent, self.ranks)
        return self.scale * min(bisect_left(edges, u) + 1, self.ranks)


@cache
def _zipf_edges(exponent: float, ranks: int) -> tuple[float, ...]:
    weights = [rank**-exponent for rank in range(1, ranks + 1)]
    return tuple(edge / sum(weights) for edge in accumulate(weights))


@dataclass(frozen=True, slots=True)
class Trace:
    """Measured numbers, one drawn per client: given as ``values`` or as a JSON list in ``file``."""

    values: tuple[float, ...] = ()
    file: str = ""
    scale: float = 1.0
    kind: Literal["trace"] = "trace"

    def __post_init__(self) -> None:
        require(not (self.file and self.values), "give values or file, not both")
        require(bool(self.file) or _are_numbers(self.values), "needs at least one number, all above 0")
        check(self.scale > 0, "scale", self.scale, "must be above 0")

    def resolved(self) -> "Trace":
        """The same with the numbers from its file, which is then no longer needed."""
        if not self.file:
            return self
        try:
            values: Any = json.loads(Path(self.file).expanduser().read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"file = {self.file!r}: no readable JSON list of seconds ({error})", "file") from error
        require(_are_numbers(values), "needs at least one number, all above 0")
        return Trace(tuple(float(value) for value in values), scale=self.scale)

    def at(self, u: float) -> float:
        return self.scale * self.values[int(u * len(self.values))]


def _are_numbers(values: Any) -> bool:
    """Whether it is a list of at least one number, all above 0."""
    return (
        isinstance(values, list | tuple)
        and len(values) > 0
        and all(isinstance(value, int | float) and 0 < value < math.inf for value in values)
    )


@dataclass(frozen=True, slots=True)
class Phones:
    """Real phones: one of 307 models per client, slower where its AI-benchmark score is lower.

    Training time falls as score^-0.57, the exponent that the same jobs on two of the phones showed. Figures from
    FLASH (Yang et al., WWW 2021), see phones.json.
    """

    median: float = 5.0
    """Seconds of the median phone."""
    kind: Literal["phones"] = "phones"

    def __post_init__(self) -> None:
        check(self.median > 0, "median", self.median, "must be above 0")

    def at(self, u: float) -> float:
        scores, exponent = phones()["scores"], phones()["exponent"]
        middle = scores[len(scores) // 2]
        return self.median * (middle / scores[int((1.0 - u) * len(scores))]) ** exponent


@cache
def phones() -> dict[str, Any]:
    """The data on real phones and their links."""
    return json.loads((files("fedfa.simulation") / "phones.json").read_text())


PAPER = Exponential()
"""3 s + Exp(5 s)."""

Distribution = Constant | Uniform | Exponential | Lognormal | Pareto | Zipf | Trace | Phones
"""To add one: a class with ``kind`` and ``at``, and its name here."""
DISTRIBUTIONS: dict[str, type[Distribution]] = {
    cls.__dataclass_fields__["kind"].default: cls for cls in get_args(Distribution)
}
