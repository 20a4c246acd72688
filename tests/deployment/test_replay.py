"""A journal, replayed."""

from pathlib import Path

import numpy as np
import pytest

from fedfa import RecordError
from fedfa.deployment.replay import replay_journal, verify_replay
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.deployments import Scripted, deploy, faulty, good


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "port-urgent"])
def test_a_replayed_journal_gives_every_arrival_and_the_model(tmp_path: Path, name: str) -> None:
    settings = {"strategy": STRATEGIES[name](concurrency=5), "keep_updates": True, "bench_seconds": 0.0}
    deploy(tmp_path / "run", Scripted(6, faulty), checkpoint_seconds=1e-9, **settings)
    replayed = replay_journal(tmp_path / "run")
    verify_replay(tmp_path / "run", replayed)
    outcomes = {arrival.outcome.partition(":")[0] for arrival in replayed.arrivals}
    assert outcomes >= {"accepted", "refused", "failed"}


def test_a_replay_that_differs_from_the_record_is_refused(tmp_path: Path) -> None:
    deploy(tmp_path / "run", Scripted(3, good), keep_updates=True)
    replayed = replay_journal(tmp_path / "run")
    changed = replayed.strategy.model.copy()
    changed[0] = np.nextafter(changed[0], np.float32(1))
    replayed.strategy.model = changed
    with pytest.raises(RecordError, match="the journal ends in model"):
        verify_replay(tmp_path / "run", replayed)
    replayed.arrivals[3] = replayed.arrivals[3]._replace(outcome="refused: no reason")
    with pytest.raises(RecordError, match="arrival 3 is"):
        verify_replay(tmp_path / "run", replayed)
    del replayed.arrivals[3:]
    with pytest.raises(RecordError, match="arrival 3 is nothing in the journal"):
        verify_replay(tmp_path / "run", replayed)
    deploy(tmp_path / "other", Scripted(3, good))
    with pytest.raises(RecordError, match="only deployments with keep-updates = true"):
        replay_journal(tmp_path / "other")
