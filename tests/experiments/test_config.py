"""One TOML file: everything in it is checked, and wrong settings are named with the remedy."""

import tomllib
from pathlib import Path

import pytest

import fedfa
from fedfa.experiments.config import from_table, load_experiment
from fedfa.experiments.points import points
from fedfa.runs.store import read_run
from fedfa.settings import to_toml

TEMPLATE = Path(fedfa.__file__).parent / "experiments" / "template.toml"


def test_the_template_spells_out_the_defaults() -> None:
    written, default = load_experiment(TEMPLATE), load_experiment()
    assert written.as_table() == default.as_table()


def test_a_resolved_experiment_reads_back_as_itself() -> None:
    table = {
        "name": "x y",
        "weather": {"speed": {"kind": "trace", "values": [1.0, 2.5]}, "availability": {"open_fraction": 0.25}},
        "strategy": {"name": "fedasync", "staleness": {"kind": "hinge", "a": 3.0, "b": 1.0}},
        "stop": {"updates": 7},
    }
    experiment = from_table(table)
    again = from_table(tomllib.loads(to_toml(experiment.as_table())))
    assert again.as_table() == experiment.as_table()
    assert again.make_strategy().staleness == fedfa.HingeStaleness(a=3.0, b=1.0)  # pyright: ignore[reportAttributeAccessIssue]


def test_overrides_reach_the_objects() -> None:
    experiment = load_experiment(None, ["strategy.window=7", "data.clients=20", "stop.updates=5", "weather=constant"])
    assert experiment.make_strategy().window == 7  # pyright: ignore[reportAttributeAccessIssue]
    assert experiment.make_task().num_clients == 20
    assert experiment.weather.speed.kind == "constant"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["stratgy.window=3"], "stratgy: unknown key; did you mean 'strategy'?"),
        (["strategy.windw=3"], "strategy.windw = 3: unknown key; did you mean 'window'?"),
        (["strategy.window=0"], "strategy.window = 0: must be at least 1"),
        (["strategy.window=ten"], 'strategy.window = "ten": must be a whole number'),
        (["strategy.window=2.5"], "strategy.window = 2.5: must be a whole number"),
        (["strategy.window=true"], "strategy.window = true: must be a whole number"),
        (["strategy.name=fedfa"], "strategy.name = 'fedfa': did you mean 'fedfa-"),
        (
            ["strategy.concurrency=51"],
            "strategy.concurrency = 51: more than the 50 clients there are (data.clients = 50)",
        ),
        (["strategy.name=fedbuff", "strategy.buffer=20", "strategy.refill=batch"], "strategy.buffer = 20: with refill"),
        (["strategy.name=fedbuff", "strategy.refill=btch"], "strategy.refill = \"btch\": did you mean 'batch'?"),
        (["data.alpha=0"], "data.alpha = 0.0: must be above 0"),
        (["data.partition=diriclet"], "did you mean 'dirichlet'?"),
        (["local.lr=fast"], 'local.lr = "fast": must be a number'),
        (["stop.updates=0"], "stop.updates = 0: must be above 0"),
        (["stop={}"], "stop: set at least one"),
        (["seed=-1"], "seed = -1: must be 0, 1, 2, ..."),
        (["name=3"], "name = 3: must be a text"),
        (["weather.speed.kind=exponentil"], "did you mean 'exponential'?"),
        (["weather=stormy"], "weather = 'stormy': must be one of paper"),
        (["model=big"], 'model = "big": must be a table of settings'),
        (["name.x=3"], "name = {'x': 3}: must be a text"),
        (["task=nofile.py:make"], "task = 'nofile.py:make': no such file"),
        (["task=x.py:make", "data.clients=3"], "data: a task of your own brings these"),
        (["window"], "--set window: must look like key=value"),
        (["compare.target=2.0"], "compare.target = 2.0: must be above 0 and at most 1"),
        (["strategy.name=no_such_module:Thing"], "cannot be imported"),
        (["strategy=fedavg"], "strategy = 'fedavg': must be a table; for the name alone, set strategy.name"),
        (["strategy.name=[]"], "strategy.name = []: must be one of"),
        (["weather.speed.kind=[]"], "weather.speed.kind = []: must be one of"),
        (["data.alpha=inf"], "data.alpha = Infinity: must be finite"),
        (["stop.accuracy=95"], "stop.accuracy = 95.0: must be at most 1; 95 % is 0.95"),
        (["weather.jitter=5000"], "weather.jitter = 5000.0: must be between 0 and 10"),
        (["name=../escape"], "name = '../escape': must be a plain folder name"),
        (["strategy.one_slot_per_client=true", "strategy.window=60"], "with one_slot_per_client it never fills"),
        (["data.clients=5000"], "data.clients = 5000: more than the 1438 examples there are"),
    ],
)
def test_wrong_settings_are_named_in_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(fedfa.ConfigError) as caught:
        load_experiment(None, overrides).make_task()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_strategy_or_kind_replaces_that_of_the_file(tmp_path: Path) -> None:
    """Settings that the new one lacks are dropped, the others stay, and misspelt keys are still refused."""
    file = tmp_path / "own.toml"
    file.write_text(
        '[strategy]\nname = "fedfa-param"\nwindow = 7\nconcurrency = 8\n[weather.speed]\nkind = "exponential"\n'
    )
    changed = load_experiment(file, ["strategy.buffer=3", "strategy.name=fedbuff", "weather.speed.kind=pareto"])
    assert changed.strategy == {"name": "fedbuff", "concurrency": 8, "buffer": 3}
    assert changed.as_table()["weather"]["speed"]["kind"] == "pareto"
    assert load_experiment(file, ["strategy.name=fedfa-delta"]).strategy["window"] == 7
    file.write_text('[strategy]\nname = "fedfa-param"\nwindw = 7\n')
    with pytest.raises(fedfa.ConfigError, match=r"strategy\.windw = 7: unknown key"):
        load_experiment(file, ["strategy.name=fedbuff"])


def test_wrong_files_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\n")
    with pytest.raises(fedfa.ConfigError, match=r"broken\.toml: not valid TOML"):
        load_experiment(broken)
    broken.write_text("[data]\nclints = 3\n")
    with pytest.raises(
        fedfa.ConfigError, match=r"broken\.toml: data\.clints = 3: unknown key; did you mean 'clients'\?"
    ):
        load_experiment(broken)
    with pytest.raises(fedfa.ConfigError, match=r"no\.toml: no such file; 'fedfa init' writes one"):
        load_experiment(tmp_path / "no.toml")
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(fedfa.ConfigError, match="cannot be read"):
        load_experiment(broken)


OWN = '''
from dataclasses import dataclass
import torch
import fedfa

@dataclass(kw_only=True, eq=False)
class Newest(fedfa.Strategy):
    """The newest result wins."""
    name = "newest"
    share: float = 1.0
    def aggregate(self, update, in_flight):
        return self.model + self.share * (update.params - self.model)

def make(seed):
    torch.manual_seed(seed)
    clients = [(torch.rand(8, 3), torch.arange(8) % 2) for _ in range(6)]
    return fedfa.Task(model=lambda: torch.nn.Linear(3, 2), clients=clients, test=clients[0], name="own")
'''


def test_a_custom_task_and_a_custom_strategy_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    experiment = from_table(
        {
            "task": f"{file}:make",
            "strategy": {"name": f"{file}:Newest", "concurrency": 3, "share": 0.5},
            "stop": {"updates": 12},
        }
    )
    run = experiment.run(tmp_path / "run")
    assert run.manifest["task"] == "own"
    assert run.manifest["strategy"]["share"] == 0.5
    assert "data" not in run.config
    both = points(experiment, [f"{file}:Newest:share=0.25", "fedavg"], [0], tmp_path / "both")
    assert [point.experiment.make_strategy().concurrency for point in both] == [3, 3]
    assert both[0].experiment.strategy["share"] == 0.25
    with pytest.raises(fedfa.ConfigError, match="has no Newst; did you mean 'Newest'"):
        from_table({"strategy": {"name": f"{file}:Newst"}})
    with pytest.raises(fedfa.ConfigError, match="has no Oldest"):
        from_table({"strategy": {"name": f"{file}:Oldest"}})


@pytest.mark.parametrize(
    "overrides",
    [
        ["weather.speed=zipf"],
        ["name=😀 ü"],
        ["strategy.name=fedasync", 'strategy.staleness={kind="hinge", a=2.0, b=1.0}'],
        ["weather=phones"],
        ["strategy.name=port-urgent", "data.dataset=femnist", "data.partition=natural", "data.clients=12"],
    ],
    ids=str,
)
def test_a_run_can_be_repeated_from_its_saved_config(overrides: list[str], tmp_path: Path) -> None:
    experiment = load_experiment(None, overrides)
    (tmp_path / "config.toml").write_text(to_toml(experiment.as_table()))
    again = load_experiment(tmp_path / "config.toml")
    assert again.as_table() == experiment.as_table()
    assert again.make_strategy().settings() == experiment.make_strategy().settings()


def test_a_trace_file_is_kept_as_its_values(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[1, 2]")
    experiment = from_table({"weather": {"speed": {"kind": "trace", "file": str(tmp_path / "t.json")}}})
    again = from_table(tomllib.loads(to_toml(experiment.as_table())))
    assert again.weather.speed == experiment.weather.speed


@pytest.mark.parametrize(
    ("code", "setting", "message"),
    [
        ("def f(:", "task={file}:make", "cannot be imported (SyntaxError"),
        ("1 / 0", "task={file}:make", "cannot be imported (ZeroDivisionError: division by zero)"),
        ("make = 3", "task={file}:make", "must be a function from seed to fedfa.Task"),
        ("def make(seed): raise OSError('disk')", "task={file}:make", "raised OSError: disk"),
        ("def make(seed): return 3", "task={file}:make", "must return a fedfa.Task, returned a int"),
        ("def make(): pass", "task={file}:make", "raised TypeError: make() takes 0 positional arguments"),
        ("import fedfa\nclass S(fedfa.Strategy): pass", "strategy.name={file}:S", "does not define aggregate"),
        ("S = 3", "strategy.name={file}:S", "is not a fedfa.Strategy"),
    ],
)
def test_errors_in_custom_code_are_reported_in_one_line(code: str, setting: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(code)
    with pytest.raises(fedfa.ConfigError) as caught:
        load_experiment(None, [setting.format(file=file)]).make_task()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_saved_config_is_always_that_of_the_records(tmp_path: Path) -> None:
    base = {"data": {"clients": 10}, "strategy": {"name": "fedasync", "concurrency": 3}}
    (tmp_path / "config.toml").write_text("left by something else")
    from_table(base | {"stop": {"updates": 5}}).run(tmp_path)
    assert load_experiment(tmp_path / "config.toml").stop.updates == 5
    left = tmp_path / "left"
    with pytest.raises(KeyboardInterrupt):
        from_table(base | {"stop": {"updates": 10**6}}).run(left, interrupted=lambda: True)
    (left / "checkpoint.npz").unlink()
    slow = {"local": {"lr": 0.01}, "stop": {"updates": 10**6}}
    with pytest.raises(fedfa.RecordError, match="holds an unfinished run"):
        from_table(base | slow).run(left)
    assert load_experiment(left / "config.toml").local.lr == read_run(left, or_unfinished=True).manifest["local"]["lr"]
    with pytest.raises(KeyboardInterrupt):  # without a checkpoint it begins anew, and these are its own rows
        from_table(base | slow).run(left, resume=True, interrupted=lambda: True)
    assert load_experiment(left / "config.toml").local.lr == 0.01
    assert read_run(left, or_unfinished=True).manifest["local"]["lr"] == 0.01
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(fedfa.ConfigError, match="is a file; give a folder"):
        from_table(base).run(taken)
