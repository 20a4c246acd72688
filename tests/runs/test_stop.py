"""When a run ends."""

from pathlib import Path

import pytest

import fedfa
from fedfa.errors import ConfigError


def test_a_run_that_has_diverged_ends_early(tmp_path: Path) -> None:
    """No evaluation (every 10 updates) reaches 99 % for 35 updates in a row: seen at the 40th."""
    stop = {"updates": 100, "diverged_below": 0.99, "diverged_updates": 35}
    run = fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run")
    assert run.manifest["ended"] == "diverged: accuracy below 0.99 for 40 updates"
    assert len(run.accepted) == 40
    assert fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run", resume=True).manifest == run.manifest
    easy = fedfa.simulate("fedfa-param", stop=stop | {"diverged_below": 0.01})
    assert easy.manifest["ended"] == "updates"
    with pytest.raises(ConfigError, match="goes with diverged_updates"):
        fedfa.simulate("fedavg", stop={"updates": 1, "diverged_below": 0.1})
    with pytest.raises(ConfigError, match="set at least one of updates, seconds, accuracy, wall_seconds"):
        fedfa.simulate("fedavg", stop={"diverged_below": 0.1, "diverged_updates": 5})
