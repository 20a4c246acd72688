"""One run as the page shows it: numbers, tables, and figures in the shapes of the report."""

import math
import time
from statistics import median
from typing import Any

from fedfa.report.interactive import as_plotly
from fedfa.report.shapes import PALETTE, Boxes, Figure, Layer, Line, number, size_in_bytes

QUIET_SECONDS = 5.0
"""A run that writes nothing for longer is said to be silent."""
SLOW = 3.0
"""A client that works this many times as long as the middle of the last arrivals stands out."""
MOST_LANES = 40
LANES_OF_MANY = 30
MOST_WORK_SHOWN = 40.0
"""The timeline goes back as far as the longest work, but no further than this many times the middle one."""

_BLUE, _RED, _GREEN, _SKY, _ORANGE, _GREY = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[5], PALETTE[4], PALETTE[9]


def view(name: str, runs: dict[str, dict[str, Any]], folder: str, left_out: int = 0) -> dict[str, Any]:
    """What the page asks for, JSON-ready: the run of this name, else the one under way, else the first."""
    fallback = next((other for other, state in runs.items() if state["state"] == "running"), next(iter(runs), ""))
    chosen = name if name in runs else fallback
    state = runs.get(chosen, {"state": "waiting"})
    kind, text = standing(state, folder)
    shown: dict[str, Any] = {
        "run": chosen,
        "runs": [_row(other, one) for other, one in runs.items()],
        "left_out": f"and {left_out:,} more; watch a folder further down to see them" if left_out else "",
        "kind": kind,
        "standing": text,
    }
    if "accepted" in state:
        figures = (
            _curve(state, "accuracy", 3, 100.0, _BLUE, " %"),
            _curve(state, "loss", 4, 1.0, _GREEN, ""),
            _pace(state),
            _staleness(state),
            _timeline(state),
        )
        shown |= {
            "title": state["label"],
            "about": _about(state),
            "share_done": state["share_done"],
            "tiles": _tiles(state),
            "longest": _longest(state),
            "reasons": [[text, f"{count:,}"] for text, count in state["reasons"].items()],
            "figures": {f.name: as_plotly(f) | {"title": f.title, "caption": f.caption} for f in figures},
        }
    return _plain(shown)


def standing(state: dict[str, Any], folder: str = "") -> tuple[str, str]:
    """How a run stands: in a word for the page's colours, and in a sentence."""
    match state["state"]:
        case "running" if state["age"] > QUIET_SECONDS:
            return "silent", f"no news for {_duration(state['age'])}"
        case "running":
            return "running", "running"
        case "finished":
            return "finished", f"finished: {state['ended']}"
        case "interrupted" | "saved":
            how = "-c resume=true" if state.get("clock") == "wall" else "--resume"
            return "stopped", f"interrupted; continue it with the command that began it, and {how}"
        case "waiting":
            return "waiting", f"waiting: there is no run in {folder} yet"
        case why:
            return "failed", f"ended: {why}"


def _row(name: str, state: dict[str, Any]) -> dict[str, Any]:
    kind, _ = standing(state)
    known = "accepted" in state
    last = state["evaluations"][-1] if known and state["evaluations"] else None
    return {
        "name": name,
        "kind": kind,
        "done": f"{100 * state['share_done']:.0f} %" if known else "",
        "updates": f"{state['accepted']:,}" if known else "",
        "accuracy": _percent(last[3]) if last else "",
    }


def _about(state: dict[str, Any]) -> str:
    settings = ", ".join(
        f"{key} {value.get('kind', value) if isinstance(value, dict) else value}"
        for key, value in state["strategy"].items()
        if value is not None
    )
    stop = ", ".join(f"{value:,.10g} {key.replace('_', ' ')}" for key, value in state["stop"].items())
    return (
        f"{state['task']}, {state['num_clients']:,} clients, seed {state['seed']}. Strategy: "
        f"{settings.removeprefix('name ')}. Stops at: {stop}."
    )


def _tiles(state: dict[str, Any]) -> list[list[str]]:
    """Name, value, and what goes with it."""
    last = state["evaluations"][-1] if state["evaluations"] else [0, 0.0, 0, math.nan, math.nan]
    outcomes, rates, virtual = state["outcomes"], state["rates"], state["clock"] == "virtual"
    accepted, staleness = outcomes["accepted"], state["staleness"]
    not_taken = state["arrivals"] - accepted
    of = "of the run" if state["state"] == "finished" else "of the last minute"
    mean = staleness["sum"] / accepted if accepted else 0.0
    return [
        ["accuracy", _percent(last[3]), f"best {_percent(state['best_accuracy'])}"],
        ["loss", f"{last[4]:.3g}" if math.isfinite(last[4]) else "–", f"at version {last[2]:,.0f}"],
        ["updates per second", _rate(rates["wall"]["updates"]), _beside(rates, "updates", virtual, of)],
        ["versions per second", _rate(rates["wall"]["versions"]), _beside(rates, "versions", virtual, of)],
        ["updates", f"{state['accepted']:,}", f"version {state['version']:,}"],
        [
            "virtual time" if virtual else "time",
            _duration(state["seconds"]),
            f"computed in {_duration(state['wall_seconds'])}" if virtual else "",
        ],
        ["training now", f"{state['in_flight']:,}", f"of {state['concurrency']:,} at a time"],
        ["staleness", number(mean), f"at most {staleness['max']:,.0f}"],
        [
            "refused or failed",
            f"{not_taken:,}",
            ", ".join(f"{count:,} {kind}" for kind, count in outcomes.items() if count and kind != "accepted")
            or "none",
        ],
        ["received", size_in_bytes(state["bytes_up"]), f"sent {size_in_bytes(state['bytes_down'])}"],
    ]


def _beside(rates: dict[str, Any], what: str, virtual: bool, of: str) -> str:
    return f"{_rate(rates['clock'][what])} per virtual second" if virtual else of


def _longest(state: dict[str, Any]) -> list[list[Any]]:
    """Those in flight for the longest: client, since when, for how long, how many versions behind, whether slow."""
    usual, now = _usual(state), state["seconds"]
    return [
        [f"{client}", _moment(state, started), _duration(now - started), f"{state['version'] - base:,}",
         usual > 0 and now - started > SLOW * usual]
        for _, client, started, base in state["longest"][:8]
    ]  # fmt: skip


def _usual(state: dict[str, Any]) -> float:
    """The middle of how long the last arrivals took; 0 before there are any."""
    return median([seconds - started for _, _, started, seconds, _, _ in state["recent"]] or [0.0])


# Figures -------------------------------------------------------------------------------------------------------------


def _clock(state: dict[str, Any]) -> str:
    return "virtual time (s)" if state["clock"] == "virtual" else "time (s)"


def _curve(state: dict[str, Any], name: str, column: int, factor: float, colour: str, unit: str) -> Figure:
    """One column of the evaluations; each value holds until the next, the last until now."""
    now = state["seconds"]
    points = [(row[1], factor * row[column]) for row in state["evaluations"]]
    points += [(now, y) for _, y in points[-1:]]
    line = Line(name, tuple(x for x, _ in points), tuple(y for _, y in points), colour, unit=unit)
    label = f"{name} ({unit.strip()})" if unit else name
    return Figure(
        name, name.capitalize(), "", _clock(state), label, (line,), x_range=(0.0, now or 1.0), height=260
    )  # fmt: skip


def _pace(state: dict[str, Any]) -> Figure:
    """Per second of the run's own clock; the last bin only counts as far as it has got."""
    pace, now = state["pace"], state["seconds"]
    width = pace["width"]
    used = min(len(pace["accepted"]), int(now / width) + 1)
    starts = [width * place for place in range(used)]
    spans = [min(width, max(now - start, width / 4)) for start in starts]
    layers = []
    for key, label, colour in (
        ("accepted", "updates", _BLUE),
        ("versions", "versions", _GREEN),
        ("not_taken", "refused or failed", _RED),
    ):
        rates = [count / span for count, span in zip(pace[key], spans, strict=False)]
        line = Line(label, (*starts, now), (*rates, rates[-1]), colour, dashed=key == "versions", width=1.8, unit=" /s")
        layers += [line] if key != "not_taken" or any(rates) else []
    top = 1.1 * max((max(line.y) for line in layers), default=0.0)
    unit = "per virtual second" if state["clock"] == "virtual" else "per second"
    return Figure(
        name="pace",
        title=f"Updates and versions {unit}",
        caption="",
        x_label=_clock(state),
        y_label=unit,
        layers=tuple(layers),
        y_range=(0.0, top or 1.0),
        height=280,
        legend=True,
    )


def _staleness(state: dict[str, Any]) -> Figure:
    staleness = state["staleness"]
    width, counts = int(staleness["width"]), staleness["counts"]
    used = [place for place, count in enumerate(counts) if count]
    bars = Boxes(
        label="accepted updates",
        left=tuple(place * width - 0.42 for place in used),
        right=tuple((place + 1) * width - 0.58 for place in used),
        low=(0.0,) * len(used),
        high=tuple(counts[place] for place in used),
        colour=_BLUE,
        hover=tuple(
            f"staleness {place * width}{f' to {(place + 1) * width - 1}' if width > 1 else ''}: {counts[place]:,.0f}"
            for place in used
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


def _timeline(state: dict[str, Any]) -> Figure:
    now, usual = state["seconds"], _usual(state)
    oldest = max((now - started for _, _, started, _ in state["longest"]), default=0.0)
    span = max(6 * usual, 1.1 * min(oldest, MOST_WORK_SHOWN * usual or oldest)) or 1.0
    since = max(0.0, now - span)
    virtual = "virtual " if state["clock"] == "virtual" else ""
    done = [(c, s, e, outcome) for _, c, s, e, outcome, _ in state["recent"] if e > since]
    working = [(client, started, base) for _, client, started, base in state["longest"]]
    many = state["num_clients"] > MOST_LANES
    if many:
        clients = [client for client, _, _ in working] or [client for client, *_ in reversed(done)]
        lanes = list(dict.fromkeys(clients))[:LANES_OF_MANY]
    else:
        seen = {int(client) for client, *_ in (*done, *working)}
        lanes = sorted({*range(state["num_clients"]), *seen})
    floor = {client: -float(place) for place, client in enumerate(lanes)}

    def boxes(label: str, colour: str, work: list[tuple[int, float, float, str]]) -> list[Layer]:
        shown = [
            (floor[client], max(start, since) - now, end - now, text)
            for client, start, end, text in work
            if client in floor
        ]
        if not shown:
            return []
        return [
            Boxes(
                label,
                left=tuple(start for _, start, _, _ in shown),
                right=tuple(end for _, _, end, _ in shown),
                low=tuple(y - 0.4 for y, *_ in shown),
                high=tuple(y + 0.4 for y, *_ in shown),
                colour=colour,
                hover=tuple(text for *_, text in shown),
            )
        ]

    def answered(taken: bool) -> list[tuple[int, float, float, str]]:
        rows = [row for row in done if (row[3] == 0) == taken]
        return [(c, s, e, f"client {c:.0f}: took {_duration(e - s)}, until {_moment(state, e)}") for c, s, e, _ in rows]

    def training(slow: bool) -> list[tuple[int, float, float, str]]:
        rows = [row for row in working if (usual > 0 and now - row[1] > SLOW * usual) == slow]
        return [
            (c, s, now, f"client {c}: for {_duration(now - s)}, since {_moment(state, s)}, from version {base}")
            for c, s, base in rows
        ]

    return Figure(
        name="timeline",
        title="Who is training, and since when",
        caption=("The clients in flight for the longest, and their last answers. " if many else "")
        + f"Orange: for more than {SLOW:.0f} times as long as the middle of the last arrivals ({_duration(usual)}).",
        x_label=f"{virtual}seconds before now",
        y_label="client",
        layers=(
            *boxes("answered", _SKY, answered(True)),
            *boxes("lost, failed or refused", _GREY, answered(False)),
            *boxes("training", _BLUE, training(False)),
            *boxes("training for long", _ORANGE, training(True)),
        ),
        x_range=(since - now, 0.01 * span),
        y_range=(-len(lanes) + 0.4, 0.6),
        y_ticks=tuple((y, f"{client:.0f}") for client, y in floor.items()),
        height=130 + max(4, min(LANES_OF_MANY, state["concurrency"]) if many else len(lanes)) * 18,
        legend=True,
    )


# Texts ---------------------------------------------------------------------------------------------------------------


def _percent(share: float | None) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def _rate(per_second: float) -> str:
    return f"{per_second:.2g}" if 0 < per_second < 1 else number(per_second)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.2g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:,.0f} min" if seconds >= 6000 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min"
    return f"{seconds / 86400:,.1f} days"


def _moment(state: dict[str, Any], seconds: float) -> str:
    """A time of the run's clock: of day where that is real, and the run under way."""
    if state["clock"] == "wall" and "written" in state:
        return time.strftime("%H:%M:%S", time.localtime(state["written"] - state["seconds"] + seconds))
    return f"{seconds:,.1f} s"


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
