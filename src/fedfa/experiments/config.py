"""An experiment: one TOML file, checked, and the objects built from it."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from fedfa.errors import ConfigError, FedfaError, UnknownKey, check, in_a_line, require
from fedfa.executors.cores import machine_cores
from fedfa.files import atomic
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import check_fit, data_task
from fedfa.learning.local import LocalTraining
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.task import Task
from fedfa.runs.run import Run
from fedfa.runs.stop import Stop
from fedfa.runs.store import is_begun, is_finished
from fedfa.settings import build, load_object, override, parse_override, suggest, to_toml
from fedfa.simulation.engine import Simulation, Steps
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.simulate import simulation
from fedfa.simulation.together import alone, undisturbed
from fedfa.simulation.weather import Weather, weather_from
from fedfa.strategies.base import Strategy
from fedfa.strategies.specs import make_strategy, parameters

DEFAULT_STRATEGY = "fedfa-param"


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """What ``fedfa compare`` runs: ``name`` or ``name:key=value:...`` for each strategy."""

    strategies: tuple[str, ...] = (
        "fedavg",
        "fedasync",
        "fedbuff",
        "port-urgent",
        "fedfa-param",
        "fedfa-delta",
        "fedfa-delta:server_lr=0.2",
        "fedfa-agree",
    )
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    target: float = 0.9

    def __post_init__(self) -> None:
        require(len(self.strategies) > 0, "strategies = []: name at least one")
        require(len(self.seeds) > 0, "seeds = []: give at least one")
        check(0 < self.target <= 1, "target", self.target, "must be above 0 and at most 1")


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run."""

    name: str
    seed: int
    task: str
    """A task of your own as ``file.py:function`` or ``package.module:function``; empty: [data], [model], [local]."""
    data: DataSettings
    model: ModelSettings
    local: LocalTraining
    weather: Weather
    strategy: dict[str, Any]
    stop: Stop
    engine: EngineSettings
    compare: CompareSettings
    source: str = "the default experiment"

    def as_table(self) -> dict[str, Any]:
        """The resolved experiment as nested plain values."""
        strategy = {"name": self.strategy["name"]} | self.make_strategy().settings()
        table = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "source"} | {"strategy": strategy}
        plain: dict[str, Any] = {key: asdict(value) if is_dataclass(value) else value for key, value in table.items()}  # pyright: ignore
        if self.task:
            del plain["data"], plain["model"], plain["local"]
        return plain

    def as_recorded(self) -> dict[str, Any]:
        """The same, without this machine's data folder, which does not affect the run."""
        table = self.as_table()
        table.get("data", {}).pop("folder", None)
        return table

    def make_strategy(self) -> Strategy:
        return make_strategy(self.strategy, "strategy")

    def make_task(self) -> Task:
        if self.task:
            function = load_object(self.task, "task")
            check(callable(function), "task", self.task, "must be a function from seed to fedfa.Task")
            try:
                task = function(self.seed)
            except Exception as error:  # code of the user's own
                raise ConfigError(f"task = {self.task!r}: raised {in_a_line(error)}") from error
            kind = type(task).__name__
            check(isinstance(task, Task), "task", self.task, f"must return a fedfa.Task, returned a {kind}")
            return task
        return data_task(self.data, self.model, self.local, self.seed)

    def run(self, out: Path | None, **how: Any) -> Run:
        """Run it, with the arguments of ``steps``."""
        with undisturbed(self.engine.threads, self.engine.front):
            return alone(self.steps(out, **how))

    def steps(
        self,
        out: Path | None,
        *,
        resume: bool = False,
        label: str = "",
        command: str = "",
        task: Task | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        progress: Callable[[Simulation], None] | None = None,
        beside: int = 1,
        cores: Callable[[], int] = machine_cores,
    ) -> Steps:
        """Run it in pieces; with ``out``, recorded in that folder together with the resolved experiment.

        ``task`` is an earlier result of ``make_task``, for several runs on the same data. So many runs go on at the
        same time in this process (``beside``), on so many ``cores``.
        """
        strategy, task = self.make_strategy(), task or self.make_task()
        strategy.check_clients(task.num_clients)

        def write_config() -> None:
            if out is not None:
                with atomic(out / "config.toml") as file:
                    file.write(to_toml(self.as_recorded()).encode())

        if out is not None:
            require(not out.exists() or out.is_dir(), f"{out}: is a file; give a folder")
        fresh = out is not None and not is_begun(out) and not is_finished(out)
        if fresh:
            write_config()
        try:
            run = yield from simulation(
                strategy, task, self.weather, self.stop, self.seed,
                engine=self.engine, out=out, resume=resume, label=label, command=command,
                target=self.compare.target, interrupted=interrupted, progress=progress, beside=beside, cores=cores,
            )  # fmt: skip
        except KeyboardInterrupt:
            write_config()  # to the rows so far
            raise
        except FedfaError:
            if fresh and out is not None and {path.name for path in out.iterdir()} <= {"config.toml", "live.json"}:
                for path in out.iterdir():  # a run that never began leaves nothing behind
                    path.unlink()
                out.rmdir()
            raise
        write_config()  # again: a continued run may have another stop
        return replace(run, config=self.as_recorded())


def load_experiment(file: str | Path | None = None, overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment; without a file, the embedded default."""
    table: dict[str, Any] = {}
    source = "the default experiment" if file is None else str(file)
    if file is not None:
        try:
            table = tomllib.loads(Path(file).read_text())
        except FileNotFoundError:
            raise ConfigError(f"{file}: no such file; 'fedfa init' writes one to start from") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read ({error})") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file}: not valid TOML: {error}") from error
    given = [parse_override(text) for text in overrides]
    for path, value in given:
        _make_room(table, path, value)
    for path, value in given:
        override(table, path, value)
    try:
        return from_table(table, source)
    except ConfigError as error:
        raise error.about(source) from error


def _make_room(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """If another strategy or another kind (of delays, say) is chosen, remove settings that only the file's one has."""
    *outer, key = path
    for name in outer:
        table = table.get(name, {})
        if not isinstance(table, dict):
            return
    if key == "kind" and table.get(key, value) != value:
        table.clear()
    elif list(path) == ["strategy", "name"] and isinstance(value, str):
        before, now = (parameters(name, "strategy.name") for name in (table.get("name", DEFAULT_STRATEGY), value))
        for name in before - now:
            table.pop(name, None)


def from_table(table: dict[str, Any], source: str = "the default experiment") -> Experiment:
    """Check a table of settings against the known keys and names."""
    known = [f.name for f in fields(Experiment) if f.name != "source"]
    for key, value in table.items():
        if key not in known:
            raise UnknownKey(f"{key}: unknown key; {suggest(key, known)}", key)
        if key in ("name", "task"):
            require(isinstance(value, str), f"{key} = {value!r}: must be a text")
        if key == "name":
            plain = value not in ("", ".", "..") and not set(value) & set("/\\\0")
            check(plain, "name", value, "must be a plain folder name, without slashes")
        if key == "strategy" and not isinstance(value, dict):
            raise ConfigError(
                f"strategy = {value!r}: must be a table; for the name alone, set strategy.name = {value!r}"
            )
    seed = table.get("seed", 0)
    check(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0, "seed", seed, "must be 0, 1, 2, ...")
    task = table.get("task", "")
    if task:
        given = [key for key in ("data", "model", "local") if key in table]
        require(not given, f"{', '.join(given)}: a task of your own brings these; leave them out or leave task out")
    weather = table.get("weather", "paper")
    strategy = dict(table.get("strategy", {}))
    strategy.setdefault("name", DEFAULT_STRATEGY)
    experiment = Experiment(
        name=table.get("name", "digits"),
        seed=seed,
        task=task,
        data=build(DataSettings, table.get("data", {}), "data"),
        model=build(ModelSettings, table.get("model", {}), "model"),
        local=build(LocalTraining, table.get("local", {}), "local"),
        weather=weather_from(weather),
        strategy=strategy,
        stop=build(Stop, table.get("stop", {"seconds": 1200.0}), "stop"),
        engine=build(EngineSettings, table.get("engine", {}), "engine"),
        compare=build(CompareSettings, table.get("compare", {}), "compare"),
        source=source,
    )
    made = make_strategy(strategy, "strategy")
    if not task:
        check_fit(experiment.data, experiment.model)
        check_size(made, experiment.data.clients, "strategy.")
        highest = experiment.stop.accuracy or 0.0
        check(highest <= 1, "stop.accuracy", highest, "must be at most 1; 95 % is 0.95")
    return experiment


def check_size(strategy: Strategy, clients: int, prefix: str) -> None:
    """Check that the strategy can work with data.clients clients; only the data gives the number for 0."""
    if clients == 0:
        return
    try:
        strategy.check_clients(clients)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error} (data.clients = {clients})") from error
