"""Flower apps that ``fedfa deploy init`` writes."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from fedfa.deployment.app import KINDS, write_app
from fedfa.deployment.settings import DeploymentSettings, settings_of
from fedfa.settings import load_object
from tests.helpers.commands import call


def test_the_example_is_what_deploy_init_writes(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "flower-digits"
    call("deploy", "init", str(tmp_path / "flower-digits"), "--task", "digits", cwd=tmp_path)
    names = sorted(path.name for path in (tmp_path / "flower-digits").iterdir())
    assert names == ["README.md", "client_app.py", "pyproject.toml", "server_app.py", "task.py"]
    for name in names:
        assert (tmp_path / "flower-digits" / name).read_text() == (example / name).read_text(), name
    again = call("deploy", "init", str(tmp_path / "flower-digits"), cwd=tmp_path, ok=2)
    assert "give another folder" in again.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_app_has_every_key_and_a_task_that_trains(tmp_path: Path, kind: str) -> None:
    write_app(tmp_path / "My App", kind)
    project = tomllib.loads((tmp_path / "My App" / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    assert {key.replace("-", "_") for key in config} == {f.name for f in fields(DeploymentSettings)}
    assert settings_of(config).out == "runs/my-app"
    make = load_object(f"{tmp_path / 'My App' / 'task.py'}:task", "task")
    server, site = make(0, None), make(0, {"partition-id": 1, "num-partitions": 2})
    assert server.initial(0).vector.tobytes() == site.initial(0).vector.tobytes()
    assert site.num_clients in (1, 2)
