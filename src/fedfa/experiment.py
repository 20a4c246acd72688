"""An experiment: one TOML file, checked, and the objects built from it."""

import importlib
import importlib.util
import inspect
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedfa.core import Strategy
from fedfa.errors import ConfigError, FedfaError, in_a_line, require
from fedfa.randomness import SPLIT, keyed
from fedfa.settings import build, override, parse_override, suggest, to_toml
from fedfa.strategies import BY_NAME
from fedfa.weather import Weather, weather_from

if TYPE_CHECKING:
    from fedfa.data import DataSet
    from fedfa.engine import Simulation, Stop
    from fedfa.local import LocalTraining
    from fedfa.models import ModelSettings
    from fedfa.record import Run
    from fedfa.task import Task

DEFAULT_STRATEGY = "fedfa-param"
Partition = Literal["dirichlet", "dirichlet-by-class", "iid", "shards", "natural"]


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Which data, and how it is split among the clients."""

    dataset: Literal["digits", "cifar10", "femnist", "sst2", "sent140", "twitter_entity", "rent_the_runway"] = "digits"
    folder: str = ""
    """Where the data set is, unless it is embedded; without it, FEDFA_DATA."""
    fraction: float = 1.0
    """Share of the examples to use, drawn at random, for quick tries."""
    clients: int = 50
    """0: every owner there is (natural)."""
    partition: Partition = "dirichlet"
    alpha: float = 0.5
    shards_per_client: int = 2
    min_examples: int = 1
    """Owners with fewer training examples are left out (natural)."""
    max_examples: int = 0
    """Of an owner's training examples only the first so many count (natural); 0: all."""

    def __post_init__(self) -> None:
        require(0 < self.fraction <= 1, f"fraction = {self.fraction}: must be above 0 and at most 1")
        every = "" if self.clients else "; 0 means every owner there is, with partition = 'natural'"
        good = self.clients >= 1 or (self.clients == 0 and self.partition == "natural")
        require(good, f"clients = {self.clients}: must be at least 1{every}")
        require(self.alpha > 0, f"alpha = {self.alpha}: must be above 0")
        require(self.shards_per_client >= 1, f"shards_per_client = {self.shards_per_client}: must be at least 1")
        require(self.min_examples >= 1, f"min_examples = {self.min_examples}: must be at least 1")
        least = f"must be at least min_examples = {self.min_examples}, or 0 for no limit"
        good = self.max_examples == 0 or self.max_examples >= self.min_examples
        require(good, f"max_examples = {self.max_examples}: {least}")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the run is computed; nothing here changes what happens when."""

    executor: Literal["auto", "inline", "batched", "lanes", "ray"] = "auto"
    workers: int = 0
    """Of the ray executor; 0: one per core, or on GPUs one per GPU, of the cluster."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """auto: the GPU, where there is one."""
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    """auto: bf16 on a GPU, fp32 on the CPU."""
    compile: bool = False
    """Let torch.compile fuse the steps of lanes: half a minute to begin with, then faster."""
    evaluate_every: int = 10
    threads: int = 1
    checkpoint_seconds: float = 10.0

    def __post_init__(self) -> None:
        require(self.evaluate_every >= 1, f"evaluate_every = {self.evaluate_every}: must be at least 1")
        require(1 <= self.threads <= 1024, f"threads = {self.threads}: must be between 1 and 1024")
        require(0 <= self.workers <= 10_000, f"workers = {self.workers}: must be between 0 and 10,000")
        require(self.checkpoint_seconds > 0, f"checkpoint_seconds = {self.checkpoint_seconds}: must be above 0")


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
        require(0 < self.target <= 1, f"target = {self.target}: must be above 0 and at most 1")


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run."""

    name: str
    seed: int
    task: str
    """A task of your own as ``file.py:function`` or ``package.module:function``; empty: [data], [model], [local]."""
    data: DataSettings
    model: "ModelSettings"
    local: "LocalTraining"
    weather: Weather
    strategy: dict[str, Any]
    stop: "Stop"
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
        """The same, but for where this machine keeps its data: that is nothing of the run."""
        table = self.as_table()
        table.get("data", {}).pop("folder", None)
        return table

    def make_strategy(self) -> Strategy:
        return make_strategy(self.strategy, "strategy")

    def make_task(self) -> "Task":
        from fedfa.task import Task

        if self.task:
            function = load_object(self.task, "task")
            require(callable(function), f"task = {self.task!r}: must be a function from seed to fedfa.Task")
            try:
                task = function(self.seed)
            except Exception as error:  # code of the user's own
                raise ConfigError(f"task = {self.task!r}: raised {in_a_line(error)}") from error
            kind = type(task).__name__
            require(isinstance(task, Task), f"task = {self.task!r}: must return a fedfa.Task, returned a {kind}")
            return task
        return data_task(self.data, self.model, self.local, self.seed)

    def run(
        self,
        out: Path | None,
        *,
        resume: bool = False,
        label: str = "",
        command: str = "",
        task: "Task | None" = None,
        interrupted: Callable[[], bool] = lambda: False,
        progress: "Callable[[Simulation], None] | None" = None,
    ) -> "Run":
        """Run it; with ``out``, recorded in that folder together with the resolved experiment.

        ``task`` is what ``make_task`` made before, for several runs on the same data.
        """
        from fedfa.record import atomic, is_begun, is_finished
        from fedfa.simulator import simulate

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
            run = simulate(
                strategy, task, self.weather, self.stop, self.seed,
                evaluate_every=self.engine.evaluate_every, executor=self.engine.executor, threads=self.engine.threads,
                device=self.engine.device, precision=self.engine.precision, compile=self.engine.compile,
                workers=self.engine.workers,
                checkpoint_seconds=self.engine.checkpoint_seconds, out=out, resume=resume, label=label,
                command=command, target=self.compare.target, interrupted=interrupted, progress=progress,
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
        write_config()  # once more: a continued run may have been given another stop
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
        raise ConfigError(f"{source}: {error}") from error


def _make_room(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Where another strategy or another kind (of delays, say) is chosen, take out what only the file's own one has."""
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
    """Check a table of settings against what there is."""
    from fedfa.engine import Stop
    from fedfa.local import LocalTraining
    from fedfa.models import ModelSettings

    known = [f.name for f in fields(Experiment) if f.name != "source"]
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"{key}: unknown key; {suggest(key, known)}")
        if key in ("name", "task"):
            require(isinstance(value, str), f"{key} = {value!r}: must be a text")
        if key == "name":
            plain = value not in ("", ".", "..") and not set(value) & set("/\\\0")
            require(plain, f"name = {value!r}: must be a plain folder name, without slashes")
        if key == "strategy" and not isinstance(value, dict):
            raise ConfigError(
                f"strategy = {value!r}: must be a table; for the name alone, set strategy.name = {value!r}"
            )
    seed = table.get("seed", 0)
    require(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0, f"seed = {seed!r}: must be 0, 1, 2, ..."
    )
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
        weather=weather_from(weather) if isinstance(weather, str) else build(Weather, weather, "weather"),
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
        require(highest <= 1, f"stop.accuracy = {highest}: must be at most 1; 95 % is 0.95")
    return experiment


def check_size(strategy: Strategy, clients: int, prefix: str) -> None:
    """Whether the strategy can work with data.clients clients; how many 0 means, only the data will tell."""
    if clients == 0:
        return
    try:
        strategy.check_clients(clients)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error} (data.clients = {clients})") from error


def check_fit(data: DataSettings, model: "ModelSettings") -> None:
    """Whether the model reads what the data set holds."""
    from fedfa.data import TEXTS

    if data.dataset in TEXTS:
        require(
            model.name == "bert", f"model.name = {model.name!r}: {data.dataset} holds texts; set model.name = 'bert'"
        )
    else:
        require(model.name != "bert", f"model.name = 'bert': reads texts, {data.dataset} holds images; use mlp or cnn")


def make_strategy(table: dict[str, Any], where: str) -> Strategy:
    """A strategy from its name (or ``file.py:Class``) and settings."""
    settings = dict(table)
    return build(strategy_class(settings.pop("name", ""), f"{where}.name"), settings, where)


def strategy_class(name: Any, where: str) -> type[Strategy]:
    if isinstance(name, str) and ":" in name:
        known, _, rest = name.partition(":")
        require(known not in BY_NAME, f"{where} = {name!r}: {rest!r} must look like KEY=VALUE")
        cls = load_object(name, where)
        require(isinstance(cls, type) and issubclass(cls, Strategy), f"{where} = {name!r}: is not a fedfa.Strategy")
        require(not inspect.isabstract(cls), f"{where} = {name!r}: does not define aggregate(update, in_flight)")
        return cls
    if not isinstance(name, str) or name not in BY_NAME:
        own = "; a class of your own is named file.py:Class"
        raise ConfigError(f"{where} = {name!r}: {suggest(name, BY_NAME, 'must be one of')}{own}")
    return BY_NAME[name]


def parameters(name: Any, where: str) -> set[str]:
    """The settings that a strategy has, by its name or ``file.py:Class``."""
    return {f.name for f in fields(strategy_class(name, where)) if f.init}


def load_object(path: str, where: str) -> Any:
    """What ``file.py:name`` or ``package.module:name`` refers to."""
    module_name, colon, attribute = path.rpartition(":")
    require(bool(colon and module_name and attribute), f"{where} = {path!r}: must look like file.py:name")
    try:
        if module_name.endswith(".py"):
            file = Path(module_name).resolve()
            require(file.is_file(), f"{where} = {path!r}: no such file {module_name}")
            spec = importlib.util.spec_from_file_location(f"fedfa_user_{file.stem}", file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except ConfigError:
        raise
    except Exception as error:  # code of the user's own
        raise ConfigError(f"{where} = {path!r}: cannot be imported ({in_a_line(error)})") from error
    names = [name for name in vars(module) if not name.startswith("_")]
    near = suggest(attribute, names, "it has")
    require(hasattr(module, attribute), f"{where} = {path!r}: {module_name} has no {attribute}; {near}")
    return getattr(module, attribute)


def data_task(data: DataSettings, model: "ModelSettings", local: "LocalTraining", seed: int) -> "Task":
    """A data set, split among clients, with a model that fits it."""
    from fedfa.data.partition import partition
    from fedfa.models import make
    from fedfa.task import Task

    check_fit(data, model)
    generator = np.random.Generator(np.random.Philox(key=keyed(seed, SPLIT)))
    rows, model = _read(data, model, generator)
    rows = rows.part(data.fraction, generator)
    try:
        parts = partition(
            data.partition, rows.train_targets.numpy(), data.clients, generator,
            alpha=data.alpha, shards_per_client=data.shards_per_client, owners=rows.owners,
            min_examples=data.min_examples, max_examples=data.max_examples,
        )  # fmt: skip
    except ConfigError as error:  # it begins with the key's name
        raise ConfigError(f"data.{error}") from error
    shape, classes = tuple(rows.train_inputs.shape[1:]), rows.classes  # the model must not hold on to the data
    order, sizes = np.concatenate(parts), [len(part) for part in parts]
    inputs, targets = rows.train_inputs[order].split(sizes), rows.train_targets[order].split(sizes)
    return Task(
        model=lambda: make(model, shape, classes),
        clients=list(zip(inputs, targets, strict=True)),
        test=(rows.test_inputs, rows.test_targets),
        local=local,
        name=f"{data.dataset}/{model.label}",
    )


def _read(
    data: DataSettings, model: "ModelSettings", generator: np.random.Generator
) -> tuple["DataSet", "ModelSettings"]:
    """Examples as the model takes them, and the model with its weights found."""
    from fedfa.data import data_folder, load, load_texts

    if model.name != "bert":
        return load(data.dataset, data.folder, generator), model
    from fedfa.data.tokens import tokenised
    from fedfa.models.bert import find_weights

    weights = find_weights(model.weights, data_folder(data.dataset, data.folder))
    texts = load_texts(data.dataset, data.folder)
    return tokenised(texts, weights, model.max_length), replace(model, weights=str(weights))


def named_task(name: str, seed: int) -> "Task":
    """The embedded task with its default settings."""
    from fedfa.local import LocalTraining
    from fedfa.models import ModelSettings

    require(name == "digits", f"task = {name!r}: must be 'digits' or a fedfa.Task")
    return data_task(DataSettings(), ModelSettings(), LocalTraining(), seed)
