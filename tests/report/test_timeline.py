"""Who trained when, and who waited."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fedfa.report.shapes import Boxes
from fedfa.report.timeline import segments, timeline_figure, waiting_share
from fedfa.runs.run import Run
from tests.helpers.reports import FAST, SLOW


def test_waiting_shares_are_those_of_the_schedule(comparison: list[Run], odd: list[Run]) -> None:
    assert waiting_share(comparison[0]) == pytest.approx((SLOW - FAST) / (2 * SLOW))
    assert waiting_share(comparison[1]) == 0
    # The refused client does not wait but works again: 2 s of waiting in its first round, 3 s in the second.
    assert waiting_share(odd[0]) == pytest.approx((2 + 3) / (2 * 8))
    assert waiting_share(odd[2]) == 0, "nothing ran"
    batches = replace(comparison[1], manifest=comparison[1].manifest | {"refill": "batch"})
    assert waiting_share(batches) == pytest.approx(1 / (2 * 7)), "the first arrival waits a second for version 1"


def test_every_slot_holds_one_client_at_a_time(comparison: list[Run], odd: list[Run]) -> None:
    for run in (*comparison, *odd):
        found = segments(run, until=np.inf)
        assert len(found) == len(run.updates)
        for slot in range(2):
            lane = sorted((s.start, s.free) for s in found if s.slot == slot)
            assert all(free <= start for (_, free), (start, _) in pairwise(lane))
        assert {s.slot for s in found} <= {0, 1}


def test_timeline_shows_work_waiting_and_refusals(odd: list[Run]) -> None:
    figure = timeline_figure(odd)
    boxes = {layer.label: layer for layer in figure.layers if isinstance(layer, Boxes)}
    assert list(zip(boxes["waiting"].left, boxes["waiting"].right, strict=True)) == [(2, 4), (5, 8)]
    assert boxes["lost or refused"].hover[0] == "client 0: 0.00 to 1.00 s, refused: not finite (NaN or Inf)"
    assert figure.y_ticks[1][1] == "only </script><b>$x_1$ & co\n0 % waiting"


def test_timeline_of_many_slots_shows_the_first(comparison: list[Run]) -> None:
    wide = replace(comparison[0], manifest=comparison[0].manifest | {"concurrency": 1000})
    assert "The first 96 slots" in timeline_figure([wide]).caption
