"""Real phones and the paper's long tail: how long clients take."""

from typing import Any

import numpy as np

from fedfa.report.grid import Grid
from fedfa.report.shapes import PALETTE, Figure, Line, number, numbers
from fedfa.simulation.weather import weather_from
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.study import Study

DRAWN = 5000
MODELS = (("0.2 MB model", 200_000), ("45 MB model, such as ResNet-18", 44_700_000))


def weathers(study: Study, results: Results) -> Section:
    """Delays of many clients under the paper's long tail, and of real phones with a small and a large model."""
    seed = study.seeds[0]
    drawn = {"paper: 3 s + Exp(5 s)": _delays("paper", seed, 0)}
    for title, size in MODELS:
        drawn[f"phones, {title}"] = _delays("phones", seed, size)
    shares = numbers((np.arange(DRAWN) + 1) / DRAWN * 100)
    lines = [
        Line(name, numbers(np.sort(delays)), shares, PALETTE[position])
        for position, (name, delays) in enumerate(drawn.items())
    ]
    rows, values = [], []
    for name, delays in drawn.items():
        median, high, most = (float(np.quantile(delays, q)) for q in (0.5, 0.9, 0.99))
        generator = np.random.Generator(np.random.Philox(seed))
        slowest = float(generator.choice(delays, (2000, 10)).max(axis=1).mean())
        rate = float(10 / delays.mean())
        rows.append((name, *map(number, (median, high, most, slowest, rate)), f"{slowest * rate / 10:.1f}×"))
        values.append({"weather": name, "median": median, "p90": high, "p99": most, "fedavg_round_seconds": slowest})
    headers = (
        "Weather",
        "Median (s)",
        "90 % (s)",
        "99 % (s)",
        "Slowest of 10 (s)",
        "Updates/s, M_c = 10",
        "Gain of not waiting",
    )
    figure = Figure(
        name="weather",
        title="How long clients take",
        caption="Share of clients that answer within a time. Phones: 307 models by AI-benchmark score with the "
        "measured up- and downlinks of 19 users (FLASH, WWW 2021), the median phone training for 5 s.",
        x_label="seconds from dispatch to answer",
        y_label="clients (%)",
        layers=tuple(lines),
        x_range=(0.0, 1.3 * max(float(np.quantile(delays, 0.9)) for delays in drawn.values())),
        legend=True,
    )
    caption = (
        "Gain of not waiting: updates per second with ten clients in flight and no waiting, over rounds of ten that "
        f"wait for the slowest. {DRAWN:,} clients, seed {seed}."
    )
    grid = Grid("The same, in numbers", headers, rows, caption)
    return Section("weather", "Real phones beside the paper's long tail", (), [grid], [figure], {"rows": values})


def _delays(name: str, seed: int, num_bytes: int) -> np.ndarray:
    forecast = weather_from(name).forecast(seed, num_bytes)
    found: list[Any] = [forecast.delay(client, 0) for client in range(DRAWN)]
    return np.array([d.download_seconds + d.compute_seconds + d.upload_seconds for d in found])
