"""How long clients take, and when they fail: the virtual clock's weather.

Every draw is a pure function of (seed, what for, client, n-th dispatch of that client). So all strategies meet the
same weather, nothing is stored for clients that are never touched, and a resumed run needs no generator state.
"""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from fedfa.errors import ConfigError, require

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def keyed(seed: int, *keys: int) -> int:
    """64 well-mixed bits for a seed and some numbers (the SplitMix64 finaliser, Steele et al. 2014, per key)."""
    z = seed & _MASK
    for key in keys:
        z = (z + (key + 1) * _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z


def uniform(seed: int, key: int) -> float:
    """A uniform number in (0, 1) for a seed and a number: ``keyed`` once more, without its loop."""
    z = (seed + (key + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (((z ^ (z >> 31)) >> 11) + 0.5) * (1.0 / (1 << 53))


# What a draw is for: one stream each.
CHOICE, SPEED, JITTER, LINK = range(1, 5)
DROPOUT, PHASE, BATCHES, SPLIT, INITIAL, EPOCHS, MEASURED = range(6, 13)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number for every client."""

    value: float = 1.0
    kind: Literal["constant"] = "constant"

    def __post_init__(self) -> None:
        require(self.value > 0, f"value = {self.value}: must be above 0")

    def at(self, u: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Evenly between two numbers."""

    low: float = 1.0
    high: float = 10.0
    kind: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        require(0 < self.low <= self.high, f"low = {self.low}, high = {self.high}: must be 0 < low <= high")

    def at(self, u: float) -> float:
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A fixed part plus an exponential one: ``shift + Exp(mean)``. The default is the paper-like long tail."""

    shift: float = 3.0
    mean: float = 5.0
    kind: Literal["exponential"] = "exponential"

    def __post_init__(self) -> None:
        require(self.shift >= 0 < self.mean, f"shift = {self.shift}, mean = {self.mean}: must be >= 0 and > 0")

    def at(self, u: float) -> float:
        return self.shift - self.mean * math.log1p(-u)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(N(ln median, sigma^2))."""

    median: float = 5.0
    sigma: float = 0.75
    kind: Literal["lognormal"] = "lognormal"

    def __post_init__(self) -> None:
        require(self.median > 0, f"median = {self.median}: must be above 0")
        require(0 <= self.sigma <= 10, f"sigma = {self.sigma}: must be between 0 and 10")

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
        require(self.scale > 0, f"scale = {self.scale}: must be above 0")
        require(self.shape >= 0.1, f"shape = {self.shape}: must be at least 0.1")
        require(self.cap >= self.scale, f"cap = {self.cap}: must be at least scale = {self.scale}")

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
        require(self.scale > 0 and self.exponent >= 0, f"scale = {self.scale}, exponent = {self.exponent}: too small")
        require(self.ranks >= 1, f"ranks = {self.ranks}: must be at least 1")

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
        values: Any = self.values
        if self.file:
            require(not values, "give values or file, not both")
            try:
                values = json.loads(Path(self.file).expanduser().read_text())
            except (OSError, ValueError) as error:
                raise ConfigError(f"file = {self.file!r}: no readable JSON list of seconds ({error})") from error
        good = isinstance(values, list | tuple) and len(values) > 0
        good = good and all(isinstance(v, int | float) and 0 < v < math.inf for v in values)
        require(good, "needs at least one number, all above 0")
        require(self.scale > 0, f"scale = {self.scale}: must be above 0")
        object.__setattr__(self, "values", tuple(float(v) for v in values))
        object.__setattr__(self, "file", "")  # what was read is what counts from now on

    def at(self, u: float) -> float:
        return self.scale * self.values[int(u * len(self.values))]


@dataclass(frozen=True, slots=True)
class Phones:
    """Real phones: one of 307 models per client, slower where its AI-benchmark score is lower.

    Training time falls as score^-0.57, the exponent that the same jobs on two of the phones showed. Figures from
    FLASH (Yang et al., WWW 2021), see data/phones.json.
    """

    median: float = 5.0
    """Seconds of the phone in the middle."""
    kind: Literal["phones"] = "phones"

    def __post_init__(self) -> None:
        require(self.median > 0, f"median = {self.median}: must be above 0")

    def at(self, u: float) -> float:
        scores, exponent = phones()["scores"], phones()["exponent"]
        middle = scores[len(scores) // 2]
        return self.median * (middle / scores[int((1.0 - u) * len(scores))]) ** exponent


@cache
def phones() -> dict[str, Any]:
    """What is known of real phones and their links."""
    return json.loads((files("fedfa") / "data" / "phones.json").read_text())


@dataclass(frozen=True, slots=True)
class Record:
    """Measured times: every client takes what it took in the record of an earlier run, deployed or simulated.

    Its n-th dispatch takes what the n-th took there, and is lost where that one was lost or failed. Beyond the recorded
    ones each draws from its own; a client that the record does not know stands in for one of those that it does.
    Recorded times include sending, so leave uplink and downlink out.
    """

    folder: str = ""
    digest: str = ""
    """Of the times in it, filled in when they are read: a run is not continued or repeated with others."""
    kind: Literal["record"] = "record"

    def __post_init__(self) -> None:
        require(bool(self.folder), "folder = '': give the folder of a finished run")
        object.__setattr__(self, "digest", self.measured().digest)

    def measured(self) -> "Measured":
        found = measured(self.folder)
        require(
            self.digest in ("", found.digest),
            f"folder = {self.folder!r}: holds other times than those this was made with; leave digest out to take them",
        )
        return found


class Measured(NamedTuple):
    """How long work took in a record, by client and in the order of dispatch."""

    clients: tuple[int, ...]
    seconds: dict[int, tuple[float, ...]]
    lost: dict[int, tuple[bool, ...]]
    digest: str


@cache
def measured(folder: str) -> Measured:
    """The times in a run's folder; an answer that came twice counts once."""
    import polars as pl

    from fedfa.record import find_run

    updates = find_run(Path(folder)).updates
    require(len(updates) > 0, f"folder = {folder!r}: nobody has answered in that run; give another")
    work = (
        updates.select(
            "client",
            "dispatch",
            seconds=(pl.col("seconds") - pl.col("dispatched_seconds")).clip(1e-9),
            lost=pl.col("outcome").str.contains("^(lost|failed):"),
        )
        .unique("dispatch", keep="first", maintain_order=True)
        .sort("client", "dispatch")
    )
    groups = work.group_by("client", maintain_order=True).agg("seconds", "lost")
    text = json.dumps(groups.rows()).encode()
    seconds = {client: tuple(values) for client, values, _ in groups.rows()}
    lost = {client: tuple(flags) for client, _, flags in groups.rows()}
    return Measured(tuple(seconds), seconds, lost, hashlib.blake2b(text, digest_size=8).hexdigest())


Distribution = Constant | Uniform | Exponential | Lognormal | Pareto | Zipf | Trace | Phones


@dataclass(frozen=True, slots=True)
class Availability:
    """Clients take new work only in a daily (or other) window; each client's window starts at its own time.

    Work that was handed out inside the window is finished, whenever that is.
    """

    period_seconds: float = 86400.0
    open_fraction: float = 0.5

    def __post_init__(self) -> None:
        require(self.period_seconds > 0, f"period_seconds = {self.period_seconds}: must be above 0")
        require(0 < self.open_fraction <= 1, f"open_fraction = {self.open_fraction}: must be above 0 and at most 1")


class Delay(NamedTuple):
    """What one dispatch will take."""

    download_seconds: float
    compute_seconds: float
    upload_seconds: float
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Weather:
    """Client speeds, links and failures."""

    speed: Distribution | Record = Exponential()
    """Seconds one dispatch takes; drawn once per client, or as recorded."""
    jitter: float = 0.0
    """Spread of each dispatch around its client's speed: a lognormal factor with this sigma and median 1."""
    uplink: Distribution | None = None
    """Bytes per second towards the server, drawn once per client; None: sending takes no time.

    Uplink and downlink follow one draw per client: who has the better of one has the better of the other."""
    downlink: Distribution | None = None
    """Bytes per second from the server, drawn once per client."""
    dropout: float = 0.0
    """Probability that a dispatch never comes back."""
    timeout_seconds: float = 60.0
    """The server gives a silent client up after this long."""
    availability: Availability | None = None
    """When clients take new work; None: always."""

    def __post_init__(self) -> None:
        require(0 <= self.jitter <= 10, f"jitter = {self.jitter}: must be between 0 and 10")
        require(0 <= self.dropout < 1, f"dropout = {self.dropout}: must be at least 0 and below 1")
        require(
            not isinstance(self.speed, Record) or (self.uplink is None and self.downlink is None),
            "speed.kind = 'record': measured times include sending; leave uplink and downlink out",
        )
        require(self.timeout_seconds > 0, f"timeout_seconds = {self.timeout_seconds}: must be above 0")

    def forecast(self, seed: int, num_bytes: int) -> "Forecast":
        return Forecast(self, seed, num_bytes)


def weather_from(spec: "str | Weather") -> Weather:
    """A Weather, or one by name: ``paper`` (3 s + Exp(5 s)), ``phones`` (real phones and their links), or any other
    distribution with its defaults; ``record:FOLDER`` takes what clients took in that run."""
    if isinstance(spec, Weather):
        return spec
    if spec.partition(":")[0] == "record":
        folder = spec.partition(":")[2]
        require(bool(folder), "weather = 'record': say which, for example weather = 'record:runs/deployed'")
        return Weather(speed=Record(folder))
    if spec == "phones":
        down, up = zip(*phones()["links"], strict=True)
        return Weather(speed=Phones(), downlink=Trace(values=down), uplink=Trace(values=up))
    known: dict[str, Callable[[], Distribution]] = {
        "paper": Exponential,
        "constant": Constant,
        "uniform": Uniform,
        "exponential": Exponential,
        "lognormal": Lognormal,
        "pareto": Pareto,
        "zipf": Zipf,
    }
    require(spec in known, f"weather = {spec!r}: must be one of {', '.join(known)}, phones, record:FOLDER")
    return Weather(speed=known[spec]())


class Forecast:
    """One run's weather: the delays of every client's every dispatch. Nothing is stored per client."""

    def __init__(self, weather: Weather, seed: int, num_bytes: int) -> None:
        self._weather = weather
        self._bytes = num_bytes
        self._normal = NormalDist()
        streams = (SPEED, JITTER, LINK, DROPOUT, PHASE, MEASURED)
        self._stream = {stream: keyed(seed, stream) for stream in streams}
        self._speed = self._stream[SPEED]
        self._measured = weather.speed.measured() if isinstance(weather.speed, Record) else None
        self._plain = not (weather.jitter or weather.dropout or weather.uplink or weather.downlink)

    def delay(self, client: int, nth: int) -> Delay:
        """What the n-th dispatch of this client takes; a lost one, until it is given up."""
        weather, stream = self._weather, self._stream
        if self._measured is not None:
            compute, lost = self._recorded(self._measured, client, nth)
        else:
            compute, lost = weather.speed.at(uniform(self._speed, client)), False  # pyright: ignore
        if self._plain:
            return Delay(0.0, compute, 0.0, lost)
        if weather.dropout and not lost and uniform(keyed(stream[DROPOUT], client), nth) < weather.dropout:
            compute, lost = weather.timeout_seconds, True
        if lost:
            return Delay(0.0, compute, 0.0, True)
        if weather.jitter:
            compute *= math.exp(weather.jitter * self._normal.inv_cdf(uniform(keyed(stream[JITTER], client), nth)))
        link = uniform(stream[LINK], client)
        down = self._bytes / weather.downlink.at(link) if weather.downlink else 0.0
        up = self._bytes / weather.uplink.at(link) if weather.uplink else 0.0
        return Delay(down, compute, up)

    def _recorded(self, measured: Measured, client: int, nth: int) -> tuple[float, bool]:
        """Seconds, and whether it is lost: in turn as far as this client's record goes, then at random from it."""
        like = client
        if client not in measured.seconds:
            like = measured.clients[int(uniform(self._speed, client) * len(measured.clients))]
        seconds = measured.seconds[like]
        if like != client or nth >= len(seconds):
            nth = int(uniform(keyed(self._stream[MEASURED], client), nth) * len(seconds))
        return seconds[nth], measured.lost[like][nth]

    def opens(self, client: int, now: float) -> float:
        """When this client next takes work: ``now`` if it does already."""
        window = self._weather.availability
        if window is None:
            return now
        phase = uniform(self._stream[PHASE], client) * window.period_seconds
        position = (now + phase) % window.period_seconds
        if position < window.open_fraction * window.period_seconds:
            return now
        return now + window.period_seconds - position
