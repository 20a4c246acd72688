"""Check this package against its conformance vectors, or (``--write``) compute them again."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedfa.settings import build
from fedfa.strategies.conformance import FILE, Case, cases, replay_case
from fedfa.strategies.registry import STRATEGIES
from fedfa.strategies.replay import Arrival, replay

LENGTH, TRAINABLE, ARRIVALS = 5, 4, 12

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {"concurrency": 3}),
    "fedavg, all alike": ("fedavg", {"concurrency": 3, "weighting": "uniform"}),
    "fedprox": ("fedprox", {"concurrency": 3, "prox_mu": 0.1}),
    "fednova": ("fednova", {"concurrency": 3}),
    "fedasync, constant": ("fedasync", {"concurrency": 3, "beta": 0.5, "staleness": "constant"}),
    "fedasync, polynomial": (
        "fedasync",
        {"concurrency": 3, "beta": 0.6, "staleness": {"kind": "polynomial", "a": 0.5}},
    ),
    "fedasync, hinge": (
        "fedasync",
        {"concurrency": 3, "beta": 0.6, "staleness": {"kind": "hinge", "a": 2.0, "b": 1.0}},
    ),
    "fedbuff": ("fedbuff", {"concurrency": 4, "buffer": 3}),
    "fedbuff, batch refill": (
        "fedbuff",
        {"concurrency": 4, "buffer": 3, "staleness": "constant", "refill": "batch"},
    ),
    "fedbuff, current, step 0.5": ("fedbuff", {"concurrency": 4, "buffer": 3, "origin": "current", "server_lr": 0.5}),
    "fedbuff, by examples": ("fedbuff", {"concurrency": 4, "buffer": 2, "weighting": "examples"}),
    "port": ("port", {"concurrency": 4, "buffer": 3, "staleness_bound": 2}),
    "port-non-urgent": ("port-non-urgent", {"concurrency": 4, "buffer": 2, "staleness_bound": 5}),
    "port-urgent": ("port-urgent", {"concurrency": 4, "buffer": 2, "similarity_weight": 0.5}),
    "fedfa-param": ("fedfa-param", {"concurrency": 4, "window": 3}),
    "fedfa-param, by examples": ("fedfa-param", {"concurrency": 4, "window": 3, "weighting": "examples"}),
    "fedfa-param, one slot per client": ("fedfa-param", {"concurrency": 4, "window": 3, "one_slot_per_client": True}),
    "fedfa-delta": ("fedfa-delta", {"concurrency": 4, "window": 3}),
    "fedfa-delta, by examples": ("fedfa-delta", {"concurrency": 2, "window": 4, "weighting": "examples"}),
    "fedfa-delta, as printed": ("fedfa-delta", {"concurrency": 4, "window": 3, "server_lr": 1.0}),
    "fedfa-delta, current": ("fedfa-delta", {"concurrency": 4, "window": 3, "server_lr": 0.5, "origin": "current"}),
    "fedfa-delta, clipped, not too stale": (
        "fedfa-delta",
        {"concurrency": 4, "window": 2, "clip_norm": 1.0, "max_staleness": 2},
    ),
    "fedfa-prox": ("fedfa-prox", {"concurrency": 4, "window": 3, "prox_mu": 0.1}),
    "fedfa-nova": ("fedfa-nova", {"concurrency": 4, "window": 3, "server_lr": 0.5}),
    "fedfa-nova, by examples": ("fedfa-nova", {"concurrency": 4, "window": 3, "weighting": "examples"}),
    "fedfa-agree": ("fedfa-agree", {"concurrency": 4, "window": 3}),
    "fedfa-agree, by examples": ("fedfa-agree", {"concurrency": 2, "window": 4, "weighting": "examples"}),
    "fedfa-agree, step 1.5": ("fedfa-agree", {"concurrency": 4, "window": 3, "server_lr": 1.5}),
}


def make(name: str, strategy_name: str, parameters: dict[str, Any], seed: int) -> Case:
    """A stream that fits the strategy: bases are versions that exist by then; one arrival must be refused."""
    rng = np.random.default_rng(seed)

    def numbers() -> list[float]:
        return [round(float(value), 3) for value in rng.normal(size=LENGTH)]

    def strategy() -> Any:
        return build(STRATEGIES[strategy_name], parameters, name)

    initial = numbers()
    arrivals: list[dict[str, Any]] = []
    for position in range(ARRIVALS):
        so_far = replay(strategy(), initial, [Arrival(**arrival) for arrival in arrivals], TRAINABLE)
        version = so_far.versions[-1] if so_far.versions else 0
        base = max(0, version - int(rng.integers(0, 4)))
        params = numbers() if position != ARRIVALS // 2 else numbers()[:-1]  # one of the wrong length
        arrivals.append(
            {
                "client": int(rng.integers(0, 4)),
                "base_version": base,
                "params": params,
                "num_examples": int(rng.integers(1, 20)),
                "num_steps": int(rng.integers(1, 9)),
            }
        )
    models = replay(strategy(), initial, [Arrival(**arrival) for arrival in arrivals], TRAINABLE)
    rounded = [[round(float(value), 6) for value in model] for model in models]
    return Case(
        name, strategy_name, parameters, TRAINABLE, initial, arrivals, rounded, models.versions, sorted(models.refused)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fedfa.strategies.conformance", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"write {FILE} into this folder")
    options = parser.parse_args()
    if options.write:
        made = [make(name, *settings, seed) for seed, (name, settings) in enumerate(SETTINGS.items())]
        lines = ",\n".join(json.dumps(asdict(case)) for case in made)
        (options.write / FILE).write_text(f'{{"format": 1, "cases": [\n{lines}\n]}}\n')
        return
    for case in cases():
        assert np.allclose(replay_case(case), case.models, atol=2e-6), case.name
        print(f"ok  {case.name}")


if __name__ == "__main__":
    main()
