"""The figures of one run, in the shapes of the report."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from fedfa.report.shapes import PALETTE, Boxes, Figure, Layer, Line
from fedfa.runs.snapshot import Snapshot
from fedfa.watch.words import duration, moment

SLOW = 3.0
"""A client that trains this many times as long as the median of the last arrivals is marked."""
MOST_LANES = 40
LANES_OF_MANY = 30
MOST_WORK_SHOWN = 40.0
"""The timeline goes back as far as the longest training, but at most this many times the median."""

_BLUE, _RED, _GREEN, _SKY, _ORANGE, _GREY = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[5], PALETTE[4], PALETTE[9]


def figures(run: Snapshot) -> list[Figure]:
    """By their names on the page."""
    evaluations = run.totals.evaluations
    accuracy = [(point.seconds, 100 * point.accuracy) for point in evaluations]
    loss = [(point.seconds, point.loss) for point in evaluations]
    return [
        _curve(run, "accuracy", accuracy, _BLUE, " %"),
        _curve(run, "loss", loss, _GREEN, ""),
        _arrivals(run),
        _staleness(run),
        _timeline(run),
    ]


def usual_seconds(run: Snapshot) -> float:
    """The median time of the last arrivals; 0 before there are any."""
    return median([arrival.seconds - arrival.started for arrival in run.totals.recent] or [0.0])


def is_slow(seconds: float, usual: float) -> bool:
    """Whether a client with this training time is marked."""
    return usual > 0 and seconds > SLOW * usual


def _clock(run: Snapshot) -> str:
    return "virtual time (s)" if run.about.clock == "virtual" else "time (s)"


def _curve(run: Snapshot, name: str, points: list[tuple[float, float]], colour: str, unit: str) -> Figure:
    """Each value holds until the next, the last until now."""
    points = points + [(run.seconds, y) for _, y in points[-1:]]
    return Figure(
        name=name,
        title=name.capitalize(),
        caption="",
        x_label=_clock(run),
        y_label=f"{name} ({unit.strip()})" if unit else name,
        layers=(Line(name, tuple(x for x, _ in points), tuple(y for _, y in points), colour, unit=unit),),
        x_range=(0.0, run.seconds or 1.0),
        height=260,
    )


def _arrivals(run: Snapshot) -> Figure:
    """Per second of the run's own clock; for the last bin, only its elapsed part counts."""
    bins, now = run.totals.arrivals_per_bin, run.seconds
    used = min(len(bins.accepted), int(now / bins.width) + 1)
    starts = [bins.width * number for number in range(used)]
    spans = [min(bins.width, max(now - start, bins.width / 4)) for start in starts]

    def line(label: str, counts: tuple[float, ...], colour: str, dashed: bool = False) -> Line:
        rates = [count / span for count, span in zip(counts, spans, strict=False)]
        return Line(label, (*starts, now), (*rates, rates[-1]), colour, dashed, width=1.8, unit=" /s")

    lines = [line("updates", bins.accepted, _BLUE), line("versions", bins.versions, _GREEN, dashed=True)]
    if any(bins.not_taken):
        lines.append(line("refused or failed", bins.not_taken, _RED))
    unit = "per virtual second" if run.about.clock == "virtual" else "per second"
    return Figure(
        name="arrivals",
        title=f"Updates and versions {unit}",
        caption="",
        x_label=_clock(run),
        y_label=unit,
        layers=tuple(lines),
        y_range=(0.0, 1.1 * max(max(line.y) for line in lines) or 1.0),
        height=280,
        legend=True,
    )


def _staleness(run: Snapshot) -> Figure:
    width, counts = int(run.totals.staleness.width), run.totals.staleness.counts
    used = [number for number, count in enumerate(counts) if count]
    bars = Boxes(
        label="accepted updates",
        left=tuple(number * width - 0.42 for number in used),
        right=tuple((number + 1) * width - 0.58 for number in used),
        low=(0.0,) * len(used),
        high=tuple(counts[number] for number in used),
        colour=_BLUE,
        hover=tuple(
            f"staleness {number * width}{f' to {(number + 1) * width - 1}' if width > 1 else ''}: {counts[number]:,.0f}"
            for number in used
        ),
    )
    end = max(6.0, 1.05 * (used[-1] + 1) * width) if used else 6.0
    return Figure(
        name="staleness",
        title="Staleness of accepted updates",
        caption="",
        x_label="versions published while the client trained",
        y_label="updates",
        layers=(bars,),
        x_range=(-0.8, end),
        height=280,
    )


# Who is training -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """A client at work, by the run's clock."""

    client: int
    start: float
    end: float
    hover: str


def _timeline(run: Snapshot) -> Figure:
    now, usual = run.seconds, usual_seconds(run)
    oldest = max((now - flight.started for flight in run.longest), default=0.0)
    span = max(6 * usual, 1.1 * min(oldest, MOST_WORK_SHOWN * usual or oldest)) or 1.0
    since = max(0.0, now - span)
    recent = [arrival for arrival in run.totals.recent if arrival.seconds > since]
    many = run.about.num_clients > MOST_LANES
    if many:
        shown = [flight.client for flight in run.longest] or [arrival.client for arrival in reversed(recent)]
        clients = list(dict.fromkeys(shown))[:LANES_OF_MANY]
    else:
        seen = {arrival.client for arrival in recent} | {flight.client for flight in run.longest}
        clients = sorted({*range(run.about.num_clients), *seen})
    lanes = {client: -float(number) for number, client in enumerate(clients)}
    answered, not_taken, training, training_for_long = _work(run, since, usual)
    layers = (
        ("answered", _SKY, answered),
        ("lost, failed or refused", _GREY, not_taken),
        ("training", _BLUE, training),
        ("training for long", _ORANGE, training_for_long),
    )
    virtual = "virtual " if run.about.clock == "virtual" else ""
    height = max(4, min(LANES_OF_MANY, run.about.concurrency) if many else len(lanes))
    return Figure(
        name="timeline",
        title="Who is training, and since when",
        caption=("The clients in flight for the longest, and their last answers. " if many else "")
        + f"Orange: more than {SLOW:.0f} times as long as the median of the last arrivals ({duration(usual)}).",
        x_label=f"{virtual}seconds before now",
        y_label="client",
        layers=tuple(box for label, colour, work in layers for box in _boxes(label, colour, work, lanes, since, now)),
        x_range=(since - now, 0.01 * span),
        y_range=(-len(lanes) + 0.4, 0.6),
        y_ticks=tuple((y, str(client)) for client, y in lanes.items()),
        height=130 + height * 18,
        legend=True,
    )


def _work(run: Snapshot, since: float, usual: float) -> tuple[list[_Work], list[_Work], list[_Work], list[_Work]]:
    """Answered, not taken, training, training for long."""
    answered: list[_Work] = []
    not_taken: list[_Work] = []
    training: list[_Work] = []
    training_for_long: list[_Work] = []
    for a in run.totals.recent:
        if a.seconds > since:
            text = f"client {a.client}: took {duration(a.seconds - a.started)}, until {moment(run, a.seconds)}"
            (answered if a.accepted else not_taken).append(_Work(a.client, a.started, a.seconds, text))
    for flight in run.longest:
        lasts = run.seconds - flight.started
        text = f"client {flight.client}: for {duration(lasts)}, since {moment(run, flight.started)}"
        work = _Work(flight.client, flight.started, run.seconds, f"{text}, from version {flight.base_version}")
        (training_for_long if is_slow(lasts, usual) else training).append(work)
    return answered, not_taken, training, training_for_long


def _boxes(
    label: str, colour: str, work: Iterable[_Work], lanes: dict[int, float], since: float, now: float
) -> list[Layer]:
    """One layer, or none if there is nothing of the kind to show."""
    shown = [one for one in work if one.client in lanes]
    if not shown:
        return []
    return [
        Boxes(
            label,
            left=tuple(max(one.start, since) - now for one in shown),
            right=tuple(one.end - now for one in shown),
            low=tuple(lanes[one.client] - 0.4 for one in shown),
            high=tuple(lanes[one.client] + 0.4 for one in shown),
            colour=colour,
            hover=tuple(one.hover for one in shown),
        )
    ]
