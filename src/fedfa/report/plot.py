"""``plot``: one figure of accuracy, for notebooks and scripts."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedfa.report.curves import accuracy_figure
from fedfa.report.static import draw
from fedfa.runs.run import Run


def plot(runs: Run | Sequence[Run], against: str = "seconds") -> Figure:
    """Accuracy of one or several runs against ``seconds``, ``updates`` or ``rounds``, as a matplotlib figure."""
    return draw(accuracy_figure([runs] if isinstance(runs, Run) else list(runs), against))
