"""``plot``."""

import fedfa
from fedfa.runs.run import Run


def test_runs_are_plotted(comparison: list[Run]) -> None:
    assert len(fedfa.plot(comparison).axes[0].get_lines()) >= 2
    assert fedfa.plot(comparison[0], "updates").axes[0].get_xlabel() == "accepted updates"
