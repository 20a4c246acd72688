"""Numbers of a run as text."""

import math
import time

from fedfa.report.shapes import number
from fedfa.runs.snapshot import Snapshot


def percent(share: float | None) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def rate(per_second: float) -> str:
    return f"{per_second:.2g}" if 0 < per_second < 1 else number(per_second)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.2g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.0f} min" if seconds >= 6000 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min"
    return f"{seconds / 86400:,.1f} days"


def moment(run: Snapshot, seconds: float) -> str:
    """A time of the run's clock: of day where that is real, and the run under way."""
    if run.about.clock == "wall" and run.written is not None:
        return time.strftime("%H:%M:%S", time.localtime(run.written - run.seconds + seconds))
    return f"{seconds:,.1f} s"
