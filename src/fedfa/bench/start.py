"""From the start of a process to its first update: importing, preparing the model, one client's training.

Every start is a process of its own. The loop written by hand imports torch and numpy; both train with one thread a
client of 60 examples, 5 local epochs, batches of 32.
"""

import json
import subprocess
import sys
import time

from fedfa.bench.base import Options, Row, Tell, middle, take_turns

MODELS = {"MLP 64-64-10": (8, 8), "CNN 8-16, 1x28x28": (1, 28, 28)}
"""And the shape of an example."""


def by_hand(shape: tuple[int, ...]) -> float:
    """Trains one client; returns when everything was imported."""
    import copy

    import numpy as np
    import torch
    from torch import nn

    imported = time.time()
    torch.set_num_threads(1)
    inputs, targets = torch.rand(60, *shape), torch.from_numpy(np.arange(60) % 10)
    body: list[nn.Module] = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    if len(shape) == 3:
        body = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        body += [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        body += [nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)]
    local = copy.deepcopy(nn.Sequential(*body))
    optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
    for _ in range(5):
        for batch in torch.randperm(60).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(local(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return imported


def by_fedfa(shape: tuple[int, ...]) -> float:
    """The same as a simulation that stops after one update."""
    from functools import partial

    import torch

    import fedfa
    from fedfa.learning.models.small import cnn, mlp

    imported = time.time()
    clients = [(torch.rand(60, *shape), torch.arange(60) % 10) for _ in range(20)]
    model = partial(cnn, 64, *shape) if len(shape) == 3 else mlp
    task = fedfa.Task(model=model, clients=clients, test=clients[0], local=fedfa.LocalTraining(lr=0.05))
    fedfa.simulate(fedfa.FedFaParam(concurrency=10, window=5), task, stop=fedfa.Stop(updates=1))
    return imported


def seconds(way: str, model: str) -> tuple[float, float]:
    """To the end of the imports, and to the first update."""
    begun = time.time()
    command = [sys.executable, "-m", "fedfa.bench.start", way, model]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, ended = json.loads(done.stdout)
    return imported - begun, ended - begun


def measure(options: Options, tell: Tell) -> list[Row]:
    found = []
    for model in list(MODELS)[: 1 if options.quick else None]:
        imports: dict[str, list[float]] = {"loop": [], "fedfa": []}

        def starts(way: str, model: str = model, imports: dict[str, list[float]] = imports) -> float:
            imported, ended = seconds(way, model)
            imports[way].append(imported)
            return 60 / ended

        rates = take_turns(
            {"loop": lambda: starts("loop"), "fedfa": lambda: starts("fedfa")},
            options.turns(5), lambda text, model=model: tell(f"{model}: {text}"),
        )  # fmt: skip
        middles = {way: middle(rates[way]) for way in rates}
        took = {way: 60 / rate for way, rate in middles.items()}
        imported = {way: middle(imports[way]) for way in imports}
        words = [f"{way} {took[way]:.2f} s, {imported[way]:.2f} of them imports" for way in ("fedfa", "loop")]
        details = {"seconds": took, "imports": imported, "rates": rates}
        found.append(Row(model, "starts/min", middles["fedfa"], middles["loop"], "loop", "; ".join(words), details))
    return found


if __name__ == "__main__":
    WAYS = {"loop": by_hand, "fedfa": by_fedfa}
    imported = WAYS[sys.argv[1]](MODELS[sys.argv[2]])
    print(json.dumps([imported, time.time()]))
