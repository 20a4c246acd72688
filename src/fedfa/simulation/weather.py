"""How long clients take, and when they fail: the virtual clock's weather.

Every draw is a pure function of (seed, what for, client, n-th dispatch of that client). So all strategies meet the
same weather, nothing is stored for clients that are never touched, and a resumed run needs no generator state.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import polars as pl

from fedfa.errors import ConfigError, check, require
from fedfa.randomness import DROPOUT, JITTER, LINK, MEASURED, PHASE, SPEED, keyed, uniform
from fedfa.runs.recorder import Outcome
from fedfa.runs.store import find_run
from fedfa.settings import build
from fedfa.simulation.distributions import DISTRIBUTIONS, PAPER, Distribution, Exponential, Phones, Trace, phones


@dataclass(frozen=True, slots=True)
class Record:
    """Measured times: every client takes as long as in the record of an earlier run, deployed or simulated.

    Its n-th dispatch takes as long as its n-th one there, and is lost if that one was lost or failed. After the last
    recorded one, times are drawn from the client's own record. A client that is not in the record gets the times of
    one that is. Recorded times include sending, so leave uplink and downlink out.
    """

    folder: str = ""
    digest: str = ""
    """Of the times in it, filled in when they are read: a run is never continued or repeated with other times."""
    kind: Literal["record"] = "record"

    def __post_init__(self) -> None:
        check(bool(self.folder), "folder", self.folder, "give the folder of a finished run")

    def resolved(self) -> "Record":
        """The same with the digest of the times in it."""
        return replace(self, digest=self.measured().digest)

    def measured(self) -> "Measured":
        found = measured(self.folder)
        check(
            self.digest in ("", found.digest),
            "folder",
            self.folder,
            "holds other times than those this was made with; leave digest out to take them",
        )
        return found


class Measured(NamedTuple):
    """The times in a record, by client and in the order of dispatch."""

    clients: tuple[int, ...]
    seconds: dict[int, tuple[float, ...]]
    lost: dict[int, tuple[bool, ...]]
    digest: str


def measured(folder: str) -> Measured:
    """The times in a run's folder; an answer that came twice counts once."""
    updates = find_run(Path(folder)).updates
    check(len(updates) > 0, "folder", folder, "no client answered in that run; give another")
    unanswered = [text for text in updates["outcome"].unique() if Outcome.parse(text).kind in ("lost", "failed")]
    work = (
        updates.select(
            "client",
            "dispatch",
            seconds=(pl.col("seconds") - pl.col("dispatched_seconds")).clip(1e-9),
            lost=pl.col("outcome").is_in(unanswered),
        )
        .unique("dispatch", keep="first", maintain_order=True)
        .sort("client", "dispatch")
    )
    groups = work.group_by("client", maintain_order=True).agg("seconds", "lost")
    text = json.dumps(groups.rows()).encode()
    seconds = {client: tuple(values) for client, values, _ in groups.rows()}
    lost = {client: tuple(flags) for client, _, flags in groups.rows()}
    return Measured(tuple(seconds), seconds, lost, hashlib.blake2b(text, digest_size=8).hexdigest())


@dataclass(frozen=True, slots=True)
class Availability:
    """Clients take new work only in a daily (or other) window; each client's window starts at its own time.

    Work that was handed out inside the window is always finished, also after its end.
    """

    period_seconds: float = 86400.0
    open_fraction: float = 0.5

    def __post_init__(self) -> None:
        check(self.period_seconds > 0, "period_seconds", self.period_seconds, "must be above 0")
        check(0 < self.open_fraction <= 1, "open_fraction", self.open_fraction, "must be above 0 and at most 1")


class Delay(NamedTuple):
    """The times of one dispatch."""

    download_seconds: float
    compute_seconds: float
    upload_seconds: float
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Weather:
    """Client speeds, links and failures."""

    speed: Distribution | Record = PAPER
    """Seconds one dispatch takes; drawn once per client, or as recorded."""
    jitter: float = 0.0
    """Spread of each dispatch around its client's speed: a lognormal factor with this sigma and median 1."""
    uplink: Distribution | None = None
    """Bytes per second towards the server, drawn once per client; None: sending takes no time.

    Uplink and downlink follow one draw per client: a client with a better uplink also has a better downlink."""
    downlink: Distribution | None = None
    """Bytes per second from the server, drawn once per client."""
    dropout: float = 0.0
    """Probability that a dispatch never comes back."""
    timeout_seconds: float = 60.0
    """Seconds after which the server gives up a silent client."""
    availability: Availability | None = None
    """When clients take new work; None: always."""

    def __post_init__(self) -> None:
        check(0 <= self.jitter <= 10, "jitter", self.jitter, "must be between 0 and 10")
        check(0 <= self.dropout < 1, "dropout", self.dropout, "must be at least 0 and below 1")
        require(
            not isinstance(self.speed, Record) or (self.uplink is None and self.downlink is None),
            "speed.kind = 'record': measured times include sending; leave uplink and downlink out",
        )
        check(self.timeout_seconds > 0, "timeout_seconds", self.timeout_seconds, "must be above 0")

    def forecast(self, seed: int, num_bytes: int) -> "Forecast":
        return Forecast(self, seed, num_bytes)

    def resolved(self) -> "Weather":
        """The same with the content of its files: a run then no longer depends on them."""
        found = {}
        for name in ("speed", "uplink", "downlink"):
            part = getattr(self, name)
            if isinstance(part, Trace | Record):
                try:
                    found[name] = part.resolved()
                except ConfigError as error:
                    raise error.inside(name) from error
        return replace(self, **found) if found else self


def weather_from(spec: "str | Weather | Mapping[str, Any]") -> Weather:
    """A Weather, one as a table, or one by name, with the content of its files.

    Names: ``paper`` (3 s + Exp(5 s)), ``phones`` (real phones and their links), any other distribution with its
    defaults, and ``record:FOLDER``, the times of the clients in that run.
    """
    if isinstance(spec, str):
        return _named(spec)
    weather = spec if isinstance(spec, Weather) else build(Weather, spec, "weather")
    try:
        return weather.resolved()
    except ConfigError as error:
        raise error.inside("weather") from error


def _named(name: str) -> Weather:
    if name.partition(":")[0] == "record":
        folder = name.partition(":")[2]
        require(bool(folder), "weather = 'record': say which, for example weather = 'record:runs/deployed'")
        return Weather(speed=Record(folder).resolved())
    if name == "phones":
        down, up = zip(*phones()["links"], strict=True)
        return Weather(speed=Phones(), downlink=Trace(values=down), uplink=Trace(values=up))
    known = {"paper": Exponential} | {kind: cls for kind, cls in DISTRIBUTIONS.items() if cls not in (Trace, Phones)}
    check(name in known, "weather", name, f"must be one of {', '.join(known)}, phones, record:FOLDER")
    return Weather(speed=known[name]())


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
        for name in ("speed", "uplink", "downlink"):
            _check_numbers(getattr(weather, name), f"weather.{name}")
        self._plain = not (weather.jitter or weather.dropout or weather.uplink or weather.downlink)

    def delay(self, client: int, nth: int) -> Delay:
        """The times of this client's n-th dispatch; for a lost one, until it is given up."""
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
        """Seconds, and whether it is lost: from this client's record in order, and after its end at random."""
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


def _check_numbers(part: Distribution | Record | None, key: str) -> None:
    """Raise a ConfigError where a distribution gives no times or rates: the clock must not go back."""
    if part is None or isinstance(part, Record):
        return
    for u in (1e-6, 0.25, 0.5, 0.75, 1.0 - 1e-6):
        check(0 < part.at(u) < math.inf, key, part, f"gives {part.at(u)} for the draw {u:g}; must be above 0")
