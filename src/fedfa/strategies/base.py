"""The vocabulary: a client's answer, a strategy's orders, and the strategy itself.

A strategy is a brain without I/O. Events go in, orders come out; it knows no clock, no network, no files and no
neural network. The simulator and a deployment are two short loops around the same object:

    orders = strategy.begin(initial_model)                 # start this many clients
    orders = strategy.receive(update, in_flight)           # at every arrival
    orders = strategy.lost(client, in_flight)              # when a client will never answer
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from fedfa.errors import EngineError, check, require
from fedfa.settings import convert, type_hints
from fedfa.strategies.vectors import Vector, cast, difference, distance, with_tail

LARGEST_NORM = 1e30
"""A finite difference longer than this is nonsense, and could overflow the model."""

MOST_WORK = 1e12
"""More examples or steps than this are nonsense."""

Refill = Literal["immediate", "batch"]
Weighting = Literal["examples", "uniform"]
Origin = Literal["base", "current"]


class Update(NamedTuple):
    """One client's answer to one dispatch."""

    client: int
    dispatch: int
    base_version: int
    params: Vector
    """The model after local training."""
    base: Vector
    """The published model of ``base_version``, from which the client started."""
    num_examples: int
    num_steps: float
    """Local steps a_k; with momentum or a proximal term, the effective number that FedNova defines."""


@dataclass(slots=True)
class Flight:
    """A dispatch whose answer is still out."""

    dispatch: int
    base_version: int


class Orders(NamedTuple):
    """What the engine must do next."""

    start: int = 0
    """Hand the newest model to this many idle clients."""
    recall: tuple[int, ...] = ()
    """Ask these clients to report early, at the end of the local epoch they are in."""
    published: bool = False
    """A new version exists."""
    refused: str = ""
    """Why the update was refused; empty if it was accepted."""
    delta_norm: float = math.nan


@dataclass(frozen=True, slots=True)
class LocalRule:
    """What clients get in addition to the task's own training settings."""

    prox_mu: float = 0.0
    """Weight of FedProx's pull towards the model the client started from."""


@dataclass(kw_only=True, eq=False)
class Strategy(ABC):
    """Base of all strategies. A new one needs only ``aggregate``; see docs/strategies.md.

    Hyper-parameters are the dataclass fields. State that must survive a restart is declared with
    ``field(init=False)`` and set in ``reset``: every checkpoint then includes it.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    synchronous: ClassVar[bool] = False

    concurrency: int = 10
    """M_c: clients training at the same time."""
    max_staleness: int | None = None
    """Refuse updates that started more versions ago than this."""
    clip_norm: float | None = None
    """Scale a client's difference down to at most this Euclidean norm."""

    version: int = field(init=False, repr=False, default=0)
    model: Vector = field(init=False, repr=False, default=None)
    num_trainable: int = field(init=False, repr=False, default=0)
    owed: int = field(init=False, repr=False, default=0)
    """Accepted updates whose slots have not been refilled yet."""
    norm: float = field(init=False, repr=False, default=0.0)
    """Euclidean norm of the difference of the update that ``aggregate`` gets."""
    step_taken: float | None = field(init=False, repr=False, default=None)
    """The server's last step eta_g, for the record, where ``aggregate`` chooses one."""

    def __post_init__(self) -> None:
        self._check_types()
        check(self.concurrency >= 1, "concurrency", self.concurrency, "must be at least 1")
        check(
            self.max_staleness is None or self.max_staleness >= 0,
            "max_staleness",
            self.max_staleness,
            "must be 0 or more",
        )
        check(self.clip_norm is None or self.clip_norm > 0, "clip_norm", self.clip_norm, "must be above 0")

    # What a strategy defines -------------------------------------------------------------------------------------

    @abstractmethod
    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        """Use the update. Return the new global model, or None if it is not time to publish one."""

    def reset(self) -> None:
        """Set up the strategy's own state; ``model`` and ``num_trainable`` are there already."""

    @property
    def local(self) -> LocalRule:
        return LocalRule()

    @property
    def refill_policy(self) -> Refill:
        """``immediate``: one new client per arrival. ``batch``: after an aggregation, as many as it consumed."""
        return "immediate"

    @property
    def round_size(self) -> int:
        """Updates that tables count as one round."""
        return 1

    @property
    def update_weight(self) -> float | None:
        """The total weight of one client's difference in the model, over all aggregations; None: not a sum.

        M_c clients train on models without each other's work, so M_c times this is the step of one generation
        of clients; that of synchronous averaging is 1. Compare strategies at the same step.
        """
        return None

    @property
    def may_recall(self) -> bool:
        """Whether ``recalls`` may ever name a client. Real clients cannot be called back."""
        return False

    def recalls(self, in_flight: Mapping[int, Flight]) -> tuple[int, ...]:
        """Clients to call back while nothing can be published."""
        return ()

    def check_clients(self, num_clients: int) -> None:
        """Raise a ConfigError if the strategy cannot work with this number of clients."""
        check(
            self.concurrency <= num_clients,
            "concurrency",
            self.concurrency,
            f"more than the {num_clients} clients there are",
        )

    # What engines call -------------------------------------------------------------------------------------------

    def begin(self, model: Vector, num_trainable: int | None = None) -> Orders:
        """Start from this model, whose first ``num_trainable`` entries are parameters (the rest: buffers)."""
        self.version, self.model, self.owed, self.step_taken = 0, model, 0, None
        self._immediate = self.refill_policy == "immediate"
        self.num_trainable = model.shape[0] if num_trainable is None else num_trainable
        require(len(model.shape) == 1, f"model: must be one flat vector, has shape {tuple(model.shape)}")
        check(
            0 <= self.num_trainable <= model.shape[0],
            "num_trainable",
            self.num_trainable,
            f"must be between 0 and the model's {model.shape[0]} entries",
        )
        self.reset()
        declared = {f.name for f in fields(self)}
        for name in vars(self):
            require(
                name in declared or name.startswith("_"),
                f"{type(self).__name__}.{name}: declare it with field(init=False), or a checkpoint would lose it",
            )
        self._check_state()
        return Orders(start=self.concurrency)

    def receive(self, update: Update, in_flight: Mapping[int, Flight]) -> Orders:
        """Handle an arrival; ``in_flight`` still holds it. A bad update changes nothing and frees its slot."""
        reason, norm = self._screen(update, in_flight)
        if reason:
            return Orders(start=1, refused=reason, delta_norm=norm)
        if self.clip_norm is not None and norm > self.clip_norm:
            clipped = update.base + (update.params - update.base) * (self.clip_norm / norm)
            update = update._replace(params=with_tail(clipped, update.params, self.num_trainable))
        self.owed += not self._immediate
        self.norm = norm if self.clip_norm is None else min(norm, self.clip_norm)
        return self._publish(self.aggregate(update, in_flight), in_flight, norm)

    def lost(self, client: int, in_flight: Mapping[int, Flight]) -> Orders:
        """A client failed or will never answer; its slot goes to another client."""
        return Orders(start=1)

    def settings(self) -> dict[str, Any]:
        """The hyper-parameters, JSON-ready."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.init}

    def state_dict(self) -> dict[str, Any]:
        self._check_state()
        return {
            f.name: value.state_dict() if callable(getattr(value, "state_dict", None)) else value
            for f, value in ((f, getattr(self, f.name)) for f in fields(self) if not f.init)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.begin(state["model"], state["num_trainable"])
        for name, value in state.items():
            own = getattr(self, name)
            if callable(getattr(own, "load_state_dict", None)):
                own.load_state_dict(value)
            else:
                setattr(self, name, value)

    # Helpers for the rules ---------------------------------------------------------------------------------------

    def staleness_of(self, update: Update) -> int:
        """tau: versions published since the client was handed its model."""
        return self.version - update.base_version

    def delta(self, update: Update, origin: Origin = "base") -> Vector:
        """D_k for the parameters; the client's own values for the buffers, which must not be differenced."""
        start = update.base if origin == "base" else self.model
        return with_tail(difference(update.params, start), update.params, self.num_trainable)

    def moved(self, delta: Vector, step: float) -> Vector:
        """The model after this step along a difference; buffers, which have no difference, are the client's own."""
        return with_tail(self.model + step * delta, delta, self.num_trainable)

    def _check_types(self) -> None:
        """Check settings against their annotations: a misspelt word must not silently mean something else."""
        hints: dict[str, Any] = {}
        for cls in reversed(type(self).__mro__[:-1]):
            try:
                hints |= type_hints(cls)
            except NameError:  # a class of the user's own, with names that only a type checker sees
                continue
        for f in fields(self):
            if f.init and f.name in hints:
                setattr(self, f.name, convert(getattr(self, f.name), hints[f.name], f.name))

    def _check_state(self) -> None:
        """Raise unless a checkpoint can hold all of the strategy's state."""
        for f in fields(self):
            odd = "" if f.init else _unkept(getattr(self, f.name, None))
            require(
                not odd,
                f"{type(self).__name__}.{f.name}: a checkpoint cannot hold a {odd}; use numbers, texts, vectors, "
                "lists, sets and dicts of them, or a class with state_dict and load_state_dict",
            )

    def _publish(self, model: Vector | None, in_flight: Mapping[int, Flight], norm: float = math.nan) -> Orders:
        immediate = self._immediate
        if model is None:
            return Orders(int(immediate), self.recalls(in_flight), False, "", norm)
        if model is self.model or not isinstance(model, type(self.model)) or model.shape != self.model.shape:
            wanted = f"a new model of shape {tuple(self.model.shape)} ({type(self.model).__name__}), or None"
            seen = "self.model itself" if model is self.model else f"a {type(model).__name__}"
            raise EngineError(f"{type(self).__name__}.aggregate must return {wanted}; it returned {seen}")
        if model.dtype != self.model.dtype:
            model = cast(model, self.model.dtype)
        self.model, self.version = model, self.version + 1
        start, self.owed = (1 if immediate else self.owed), 0
        return Orders(start, (), True, "", norm)

    def _screen(self, update: Update, in_flight: Mapping[int, Flight]) -> tuple[str, float]:
        """Why the update cannot be taken ("" if it can), and the norm of its difference."""
        flight = in_flight.get(update.client)
        params, model = update.params, self.model
        if flight is None:
            return f"client {update.client} has nothing in flight", math.nan
        if flight.dispatch != update.dispatch:
            return f"repeat: dispatch {update.dispatch} was answered already", math.nan
        if flight.base_version != update.base_version or not 0 <= update.base_version <= self.version:
            return f"unknown base version {update.base_version}", math.nan
        if type(params) is not type(model) or params.shape != model.shape:
            return f"wrong shape {getattr(params, 'shape', type(params).__name__)}, not {model.shape}", math.nan
        if params.dtype is not model.dtype and params.dtype != model.dtype:
            return f"wrong dtype {params.dtype}, not {model.dtype}", math.nan
        try:
            sensible = 0 < update.num_examples < MOST_WORK and 1 / MOST_WORK < update.num_steps < MOST_WORK
        except TypeError:
            sensible = False
        if not sensible:
            return f"no work done: {update.num_examples!r} examples, {update.num_steps!r} steps", math.nan
        if self.max_staleness is not None and self.staleness_of(update) > self.max_staleness:
            return f"staleness {self.staleness_of(update)} above max_staleness {self.max_staleness}", math.nan
        split = self.num_trainable
        if split == model.shape[0]:
            norm, tail_norm = distance(params, update.base), 0.0
        else:
            norm, tail_norm = distance(params[:split], update.base[:split]), distance(params[split:], model[split:])
        if norm + tail_norm < LARGEST_NORM:
            return "", norm
        return f"norm {norm:.3g} is absurd" if math.isfinite(norm + tail_norm) else "not finite (NaN or Inf)", norm


def _unkept(value: Any) -> str:
    """The type of the part of this value that a checkpoint cannot hold; empty if it can hold all of it."""
    is_vector = hasattr(value, "dtype") and hasattr(value, "shape")
    keeps_itself = callable(getattr(value, "state_dict", None))
    if value is None or isinstance(value, bool | int | float | str) or is_vector or keeps_itself:
        return ""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return next((odd for item in value if (odd := _unkept(item))), "")
    return type(value).__name__


def _plain(value: Any) -> Any:
    """A setting in a form that JSON can hold."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return asdict(value) if is_dataclass(value) else getattr(value, "__name__", repr(value))  # pyright: ignore


def example_weight(update: Update, weighting: Weighting) -> float:
    """n_k, or 1 for every client."""
    return float(update.num_examples) if weighting == "examples" else 1.0
