"""Summaries against schedules worked out by hand."""

import json
from dataclasses import asdict
from io import StringIO
from statistics import stdev

import pytest
from rich.console import Console

from fedfa.report.tables import as_rich, summarise
from fedfa.runs.run import Run
from tests.helpers.reports import TARGET


def test_summary_matches_the_schedule(comparison: list[Run]) -> None:
    fedavg, fedfa = summarise(comparison, TARGET)
    # The third evaluation shows the target. FedAvg: three rounds of 4 s. FedFa: the sixth of the arrivals at
    # 1, 2, 3, 4, 4, 5 s. Seed 2 is 1.5 times as slow.
    sync, windowed = (12.0, 18.0), (5.0, 7.5)
    assert (fedavg.label, fedavg.seeds, fedavg.reached) == ("fedavg", 2, 2)
    assert (fedavg.time_mean, fedavg.time_sd) == (15.0, pytest.approx(stdev(sync)))
    assert (fedfa.time_mean, fedfa.time_sd) == (6.25, pytest.approx(stdev(windowed)))
    assert (fedfa.updates_mean, fedfa.rounds_mean) == (6, 3)
    assert (fedavg.speedup, fedfa.speedup) == (1.0, pytest.approx(15 / 6.25))
    assert (fedfa.best_mean, fedfa.best_sd, fedfa.final_mean) == (pytest.approx(0.8), 0, pytest.approx(0.8))
    assert (fedavg.staleness_mean, fedavg.staleness_max) == (0.0, 0)
    # Versions 0, 1, 2, 3, 4, 5, 6, 7 after eight arrivals: the slow client's first (the fifth) missed three, the
    # fast one's next missed the slow one's publication, the others none.
    assert (fedfa.staleness_mean, fedfa.staleness_max) == (pytest.approx((3 + 1) / 8), 3)


def test_summary_of_a_target_that_some_runs_miss(odd: list[Run]) -> None:
    rows = {row.label: row for row in summarise(odd, TARGET)}
    fedavg = rows["fedavg"]
    # Refused at 1 s, client 0 starts again and arrives at 2 s: the rounds end at 4 and 8 s all the same.
    assert (fedavg.reached, fedavg.seeds, fedavg.time_mean, fedavg.time_sd) == (1, 2, 8.0, None)
    assert rows["fedasync"].complete
    assert rows["fedasync"].speedup is None, "one seed of fedavg has no time to compare with"
    nothing = rows["only </script><b>$x_1$ & co"]
    assert (nothing.reached, nothing.time_mean, nothing.best_mean, nothing.staleness_mean) == (0, None, 0.1, None)
    json.dumps([asdict(row) for row in rows.values()], allow_nan=False)


@pytest.mark.parametrize("width", [60, 100, 120])
def test_the_terminal_table_shows_missed_targets_and_cuts_nothing(odd: list[Run], width: int) -> None:
    file = StringIO()
    Console(file=file, width=width).print(as_rich(summarise(odd, TARGET), TARGET))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for word in ("reached", "8.00", "80.0"):
        assert word in text
    if width == 120:
        assert "1 of 2 reached" in text
        assert "not reached" in text
