"""Runs on real Flower daemons, on this machine."""

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfa.deployment.flower.federation import Federation
from fedfa.runs.store import read_run
from tests.helpers.deployments import assert_journal_gives
from tests.helpers.federations import APPS, EXAMPLE, connected, count, entries, finished, losses, model_of, wait_until


@pytest.mark.parametrize("federation", [0], indirect=True)
def test_misbehaving_clients_a_killed_server_and_a_stock_client(tmp_path: Path, federation: Federation) -> None:
    """Node 0 is good, 1 sends wrong answers, 2 joins late and raises; the server is killed and resumed."""
    out = tmp_path / "run"
    config = {"out": str(out), "stop-updates": 6}
    federation.start_node(0)
    federation.start_node(1, config='fault="nan,shape,repeat,none"')
    federation.start_run(APPS / "tiny", config, quiet=True)
    wait_until(lambda: count(out, "update") >= 1, 90, federation, "the first update")
    federation.start_node(2, config='fault="raise"')
    wait_until(lambda: any("refused: repeat" in text for text in losses(out)), 90, federation, "the repeat")
    wait_until(lambda: any("raised" in text for text in losses(out)), 90, federation, "the late node's failure")
    (server,) = federation.processes("flwr-serverapp")
    os.kill(server, signal.SIGKILL)
    before = [entry for entry in entries(out) if entry["kind"] == "update"]

    federation.start_run(APPS / "tiny", config | {"resume": True}, quiet=True)
    wait_until(finished(out), 120, federation, "the resumed run's end")
    run = read_run(out)
    after = [entry for entry in entries(out) if entry["kind"] == "update"]
    assert after[: len(before)] == before, "no update that had come may be lost"
    assert len(run.accepted) == 6
    outcomes = dict(zip(run.updates["dispatch"], run.updates["outcome"], strict=True))
    assert {outcomes[entry["dispatch"]] for entry in after} == {"accepted", "refused: not finite (NaN or Inf)"}
    reasons = set(outcomes.values())
    assert "lost: the server was started again" in reasons
    for start in (
        "refused: wrong shape: 'flat' is",
        "refused: repeat: answers dispatch",
        "failed: the client app raised",
    ):
        assert any(text.startswith(start) for text in reasons), start
    failed = run.updates.filter(run.updates["outcome"].str.starts_with("failed")).to_dicts()
    pauses = [later["dispatched_seconds"] - one["seconds"] for one, later in pairwise(failed)]
    assert all(pause >= 2**nth for nth, pause in enumerate(pauses)), "bench-seconds is 1, and doubles"
    assert_journal_gives(out, model_of(out))

    out = tmp_path / "stock"
    federation.start_run(APPS / "stock", {"out": str(out), "stop-updates": 4}, quiet=True)
    wait_until(finished(out), 90, federation, "the stock clients' run")
    run = read_run(out)
    assert len(run.accepted) == 4
    assert run.accepted["num_examples"].to_list() == [32] * 4
    assert (run.accepted["train_loss"] > 0).all()
    assert run.final_accuracy > run.evaluations["accuracy"][0]


@pytest.mark.parametrize("federation", [4], indirect=True)
def test_digits_to_90_per_cent(tmp_path: Path, federation: Federation) -> None:
    out = tmp_path / "run"
    wait_until(lambda: connected(federation) == 4, 90, federation, "four nodes")
    federation.start_run(EXAMPLE, {"out": str(out)}, quiet=True)
    wait_until(finished(out), 240, federation, "90 % on the digits")
    run = read_run(out)
    assert run.manifest["ended"] == "accuracy"
    assert run.final_accuracy >= 0.9
    assert run.manifest["num_clients"] == 4
    assert set(run.accepted["client"]) == {0, 1, 2, 3}
