"""The server app and signals."""

import os
import signal
import time

import pytest

pytest.importorskip("flwr")

from fedfa.deployment.flower import server


def test_a_signal_ends_the_run_before_flower_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append("flower"))

    def run() -> None:
        with server.stopped_in_order():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # impatient, and does not disturb the clean-up
                seen.append("run")

    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert seen == ["run", "flower"]
        assert "go on with resume=true" in caplog.text
    finally:
        signal.signal(signal.SIGTERM, before)
