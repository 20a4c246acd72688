"""``fedfa deploy``, as far as it goes without a daemon."""

from pathlib import Path

import pytest

import fedfa
import fedfa.errors
from fedfa.deployment.app import check_app, write_app
from tests.helpers.commands import call


def test_deploy_try_checks_the_run_config_before_any_daemon_starts(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    app = tmp_path / "app"
    write_app(app, "digits")
    check_app(app, {"strategy": "mine.py:Own:rate=2.0", "seed": 3})
    for key, value, message in [
        ("strateg", "fedavg", "--set strateg: unknown key of the app's run config; did you mean 'strategy'?"),
        ("keep_updates", True, "did you mean 'keep-updates'?"),
        ("strategy", "fedav", "did you mean 'fedavg'?"),
        ("evaluate-every", "often", "must be a whole number"),
    ]:
        with pytest.raises(fedfa.ConfigError) as caught:
            check_app(app, {key: value})
        assert message in str(caught.value)
    done = call("deploy", "try", "app", "--set", "strategy=port-urgent", cwd=tmp_path, ok=2)
    assert "use port-non-urgent, which waits for them" in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
