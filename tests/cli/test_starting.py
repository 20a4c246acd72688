"""``fedfa --help``, ``init`` and ``strategies``."""

import subprocess
import sys
from pathlib import Path

import fedfa
import fedfa.errors
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.commands import call, last_json


def test_help_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys, fedfa.cli; sys.argv[1:] = ['--help']; fedfa.cli.main(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "run " in done.stdout
    assert "paper " in done.stdout
    assert done.stdout.strip().endswith("False")
    for command in ("run", "compare", "report", "watch", "replay", "theory", "bench", "strategies", "init"):
        assert "--help" in call(command, "--help", cwd=tmp_path).stdout
    assert "..." not in call("--help", cwd=tmp_path).stdout.partition("Commands:")[2]
    assert (
        "FOLDER  A run's folder, or one that holds several runs.  [required]"
        in call("report", "--help", cwd=tmp_path).stdout
    )
    assert call("--version", cwd=tmp_path).stdout == f"fedfa {fedfa.__version__}\n"


def test_init_writes_once_and_runs(tmp_path: Path) -> None:
    call("init", cwd=tmp_path)
    assert "exists already" in call("init", cwd=tmp_path, ok=2).stderr
    done = call("run", "experiment.toml", "--json", "--set", "stop.updates=10", cwd=tmp_path)
    assert last_json(done)["strategy"]["name"] == "fedfa-param"
    assert "cannot be written" in call("init", "no/such/place.toml", cwd=tmp_path, ok=2).stderr


def test_strategies_are_listed_with_paper_and_parameters(tmp_path: Path) -> None:
    done = call("strategies", "--json", cwd=tmp_path)
    entries = {entry["name"]: entry for entry in last_json(done)}
    assert set(entries) == set(STRATEGIES)
    for entry in entries.values():
        assert entry["name"] in done.stdout
        assert entry["paper"]
        assert all(parameter["meaning"] for parameter in entry["parameters"]), entry["name"]
    assert "window" in {parameter["name"] for parameter in entries["fedfa-param"]["parameters"]}
