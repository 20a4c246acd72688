"""What is registered is named where a user looks for it: in the template, in help texts and in the documentation."""

import re
import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from fedfa.bench.registry import BENCHMARKS
from fedfa.executors.registry import EXECUTORS
from fedfa.experiments.config import CompareSettings
from fedfa.learning.data.partition import PARTITIONS
from fedfa.learning.data.registry import DATASETS
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.local import LocalTraining
from fedfa.learning.models.registry import MODELS
from fedfa.learning.models.settings import ModelSettings
from fedfa.simulation.distributions import DISTRIBUTIONS
from fedfa.simulation.settings import EngineSettings
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.commands import call

ROOT = Path(__file__).parent.parent
TEMPLATE = (files("fedfa.experiments") / "template.toml").read_text()


def comment_of(key: str) -> str:
    """The comment behind the first line that sets this key."""
    found = re.search(rf"^{key} = [^#\n]*#(.*)$", TEMPLATE, re.MULTILINE)
    assert found is not None, key
    return found[1]


@pytest.mark.parametrize(
    ("key", "names"),
    [("dataset", DATASETS), ("partition", PARTITIONS), ("executor", EXECUTORS), ("kind", DISTRIBUTIONS)],
)
def test_the_template_names_all_that_is_registered(key: str, names: dict[str, object]) -> None:
    listed = set(re.findall(r"[\w-]+", comment_of(key)))
    assert set(names) - listed == set()


def test_the_template_names_all_models() -> None:
    section = TEMPLATE[TEMPLATE.index("\n[model]") : TEMPLATE.index("\n[local]")]
    assert [name for name in MODELS if name not in section] == []


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("data", DataSettings),
        ("model", ModelSettings),
        ("local", LocalTraining),
        ("engine", EngineSettings),
        ("compare", CompareSettings),
    ],
)
def test_the_template_has_every_key(table: str, settings: type) -> None:
    assert set(tomllib.loads(TEMPLATE)[table]) == {f.name for f in fields(settings)}


def test_help_texts_name_all_benchmarks(tmp_path: Path) -> None:
    shown = set(re.findall(r"\w+", call("bench", "--help", cwd=tmp_path).stdout))
    assert set(BENCHMARKS) - shown == set()


def test_the_catalogue_shows_every_strategy(tmp_path: Path) -> None:
    shown = call("strategies", cwd=tmp_path).stdout
    assert [name for name in STRATEGIES if name not in shown] == []


def test_the_tree_in_the_design_is_the_tree() -> None:
    """Every module that docs/design.md names is there, and every package and module is named."""
    block = (ROOT / "docs" / "design.md").read_text().split("```")[1]
    named: dict[str, set[str]] = {}
    package = ""
    for line in block.splitlines():
        if found := re.match(r"  (\w+)/  +(.*)", line):
            package, line = found[1], found[2]
            named[package] = set()
        elif not line.startswith("      "):
            package = ""
        if package:
            named[package] |= set(re.findall(r"(\w+(?:\.py|\.toml|/))", line))
    source = ROOT / "src" / "fedfa"
    assert set(named) == {path.name for path in source.iterdir() if (path / "__init__.py").is_file()}
    for name, modules in named.items():
        assert [one for one in modules if not (source / name / one).exists()] == [], name
        if modules and name not in ("strategies", "bench", "cli"):  # these say "one file per ..."
            there = {path.name for path in (source / name).glob("*.py")} - {"__init__.py"}
            assert there - modules == set(), name
