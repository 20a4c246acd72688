"""How cost grows with the length of the model d, the window K, the clients in flight M_c and those registered N.

The server's time per arrival over d and K is that of ``aggregation``; time and memory per update over M_c and N are
those of ``engine``. Four panels, drawn as ``growth.png`` and ``growth.pdf``.
"""

from collections.abc import Iterable, Sequence
from itertools import cycle

from fedfa.bench import aggregation, engine
from fedfa.bench.base import Options, Row, Tell
from fedfa.report.shapes import PALETTE, Dots, Figure, Layer, Line, numbers
from fedfa.report.static import draw_together, save_sheet

LENGTHS, WINDOWS = (100_000, 1_000_000, 11_000_000, 110_000_000), (5, 10, 100)
CLIENTS, IN_FLIGHT, UPDATES = (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 10_000), 100_000
QUICK_LENGTHS, QUICK_WINDOWS = (10_000, 100_000), (2, 5)
QUICK_CLIENTS, QUICK_IN_FLIGHT, QUICK_UPDATES = (10, 1_000), (10, 100), 1_000


def measure(options: Options, tell: Tell) -> list[Row]:
    lengths, windows = (QUICK_LENGTHS, QUICK_WINDOWS) if options.quick else (LENGTHS, WINDOWS)
    clients, flights, updates = (
        (QUICK_CLIENTS, QUICK_IN_FLIGHT, QUICK_UPDATES) if options.quick else (CLIENTS, IN_FLIGHT, UPDATES)
    )
    arrivals = [
        row
        for length in lengths
        for row in aggregation.rows_of(length, [("fedfa-param", k) for k in windows], options.turns(9), tell)
    ]
    sizes = [engine.Size(n, m, updates) for n in clients for m in flights if m <= n]
    simulated = engine.rows_of(sizes, options.turns(3), tell)
    save_sheet(draw_together(figures(arrivals, simulated)), "growth", options.out)
    return arrivals + simulated


def figures(arrivals: Sequence[Row], simulated: Sequence[Row]) -> list[Figure]:
    """One per quantity that grows."""
    by_d = [
        (f"K = {k}", [(row.details["d"], row.details["milliseconds"]) for row in arrivals if row.details["K"] == k])
        for k in _values(arrivals, "K")
    ]
    copied = [
        (row.details["d"], row.details["bytes_per_coordinate"] * row.details["d"] / row.baseline / 1e6)
        for row in arrivals
        if row.details["K"] == _values(arrivals, "K")[0]
    ]
    by_k = [
        (f"d = {d:,}", [(row.details["K"], row.details["milliseconds"]) for row in arrivals if row.details["d"] == d])
        for d in _values(arrivals, "d")
    ]
    return [
        _figure("d", "Server: time per arrival over d", "d, parameters", "ms per arrival", by_d, copied),
        _figure("k", "Server: time per arrival over K", "K, results in the window", "ms per arrival", by_k),
        _figure(
            "in-flight", "Engine: time per update over M_c", "M_c, clients in flight", "µs per update",
            _engine_lines(simulated, "clients", "N", "in_flight", "microseconds"), y_log=False,
        ),
        _figure(
            "clients", "Engine: memory of a run over N", "N, registered clients", "MiB",
            _engine_lines(simulated, "in_flight", "M_c", "clients", "bytes", 2**-20), y_log=False,
        ),
    ]  # fmt: skip


def _values(rows: Iterable[Row], name: str) -> list[int]:
    return sorted({row.details[name] for row in rows})


def _engine_lines(
    rows: Sequence[Row], each: str, symbol: str, along: str, value: str, scale: float = 1.0
) -> list[tuple[str, list[tuple[float, float]]]]:
    return [
        (
            f"{symbol} = {one:,}",
            [(row.details[along], scale * row.details[value]) for row in rows if row.details[each] == one],
        )
        for one in _values(rows, each)
    ]


def _figure(
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    lines: Iterable[tuple[str, list[tuple[float, float]]]],
    copied: Sequence[tuple[float, float]] = (),
    y_log: bool = True,
) -> Figure:
    layers: list[Layer] = []
    for colour, (label, points) in zip(cycle(PALETTE), lines, strict=False):
        x, y = (numbers(values) for values in zip(*points, strict=True))
        hover = tuple(f"{label}: {b:,.3g} at {a:,.0f}" for a, b in points)
        layers += [
            Line(label, x, y, colour, step=False, width=2),
            Dots(label, x, y, (4.5,) * len(x), colour, hover),
        ]
    if copied:
        x, y = (numbers(values) for values in zip(*copied, strict=True))
        layers.append(Line("copying as many bytes", x, y, "#808080", dashed=True, step=False, width=1.6))
    low = min(min(layer.y) for layer in layers if isinstance(layer, Line))
    high = max(max(layer.y) for layer in layers if isinstance(layer, Line))
    return Figure(
        f"growth-{name}", title, "", x_label, y_label, tuple(layers),
        y_range=(low / 2, high * 2) if y_log else (0, 1.5 * high), x_log=True, y_log=y_log, height=360, legend=True,
    )  # fmt: skip
