"""pfl-research's own CIFAR-10 benchmark work, by pfl, by fedfa and by the loop everyone writes by hand.

Synchronous FedAvg as in pfl's benchmarks/image_classification (cifar10_iid, simple_cnn): 1,000 users with 50 images,
cohorts of 50, one local epoch, batch 10, SGD lr 0.1, central lr 1, users weighted alike, a CNN with 1.6 million
parameters and dropout. Random images of CIFAR-10's shape (speed does not depend on their content), on the device from
the start. The metric is client trainings per second.

What is on the clock: training and averaging. Evaluation is not: pfl's is set to iteration 0, which warms up and is not
counted; fedfa judges 10 images at the beginning and at the end of a run. fedfa's clock is around the whole call of
``simulate``. pfl runs as its benchmark does (user data preloaded as tensors on the device, no mixed precision unless
asked for), less its logging, metrics file and the privacy mechanisms, which that benchmark sets to none. The same
torch switches hold for all. The ways take turns; one warm-up of each is outside of the clock. Prints a table of
medians, ratios last.

pfl's guide advises to try several processes on one GPU. With --pfl-processes N, that many pfl processes train a
cohort's N-th part each, at the same time and without ever exchanging their sums: more than pfl can reach.
"""

# pyright: reportMissingImports=false

import argparse
import copy
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

COHORT, BATCH, LR, CLASSES = 50, 10, 0.1, 10


class ChannelsFirst(nn.Module):
    """pfl keeps images as TensorFlow does, channels last."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.permute(0, 3, 1, 2)


class Cnn(nn.Sequential):
    """pfl's simple_cnn: two convolutions, a pool, two dense layers; with the methods that pfl asks for."""

    def __init__(self, dropout: tuple[float, float], first: type[nn.Module] = nn.Identity) -> None:
        early, late = (nn.Dropout(rate) if rate else nn.Identity() for rate in dropout)
        super().__init__(
            first(), nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), early,
            nn.Flatten(), nn.Linear(14 * 14 * 64, 128), nn.ReLU(), late, nn.Linear(128, CLASSES),
        )  # fmt: skip
        for module in self:
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)

    def loss(self, inputs: Tensor, targets: Tensor, eval: bool = False) -> Tensor:
        self.train(not eval)
        return F.cross_entropy(self(inputs), targets.long())

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor, eval: bool = True) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(self.loss(inputs, targets, eval).item() * len(inputs), len(inputs))}


def settled(device: str) -> float:
    """The time, once the device has done all that was asked of it."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def users(options: argparse.Namespace) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images with channels last, and their labels."""
    random = np.random.default_rng(0)
    return [
        (
            random.standard_normal((options.images, 32, 32, 3), dtype=np.float32),
            random.integers(0, CLASSES, options.images),
        )
        for _ in range(options.users)
    ]


def by_pfl(options: argparse.Namespace, cohort: int) -> Callable[[int], float]:
    os.environ["PFL_PYTORCH_DEVICE"] = options.device
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.internal.ops.pytorch_ops import to_tensor
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Times(TrainingProcessCallback):
        def __init__(self) -> None:
            self.begun = 0.0

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            if central_iteration == 0:
                self.begun = settled(options.device)
            return False, Metrics()

    data = {user: tuple(to_tensor(part) for part in pair) for user, pair in enumerate(users(options))}
    dataset = FederatedDataset.from_slices(data, get_user_sampler("random", list(data)))
    module = Cnn(options.dropout, ChannelsFirst).to(options.device)
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
        amp_dtype=torch.bfloat16 if options.precision == "bf16" else None,
    )
    backend = SimulatedBackend(training_data=dataset, val_data=dataset, postprocessors=[WeightByUser()])

    def run(rounds: int) -> float:
        times = Times()
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=rounds + 1,
                evaluation_frequency=10**9,
                train_cohort_size=cohort,
                val_cohort_size=0,
            ),
            backend=backend,
            model=model,
            model_train_params=NNTrainHyperParams(local_learning_rate=LR, local_num_epochs=1, local_batch_size=BATCH),
            model_eval_params=NNEvalHyperParams(local_batch_size=10_000),
            callbacks=[times],
            send_metrics_to_platform=False,
        )
        return settled(options.device) - times.begun

    return run


def by_fedfa(options: argparse.Namespace) -> Callable[[int], float]:
    import fedfa
    from fedfa.executors.registry import make_executor
    from fedfa.learning.device import Device

    clients = [
        (torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)) for images, labels in users(options)
    ]
    task = fedfa.Task(
        model=lambda: Cnn(options.dropout),
        clients=clients,
        test=tuple(part[:10] for part in clients[0]),  # pyright: ignore[reportArgumentType]
        local=fedfa.LocalTraining(epochs=1, batch_size=BATCH, lr=LR),
    )
    device = Device.of(options.device, options.precision if options.device == "cuda" else "auto")
    executor = make_executor(options.executor, task, 0, device)
    print(f"fedfa's executor: {executor.name}", flush=True)
    threads = torch.get_num_threads()

    def run(rounds: int) -> float:
        strategy = fedfa.FedAvg(concurrency=COHORT, weighting="uniform")
        begun = settled(options.device)
        done = fedfa.simulate(
            strategy, task, stop=fedfa.Stop(updates=rounds * COHORT),
            engine={"evaluate_every": 10**9, "threads": threads}, executor=executor,
        )  # fmt: skip
        seconds = settled(options.device) - begun
        assert done.manifest["version"] == rounds, done.manifest["version"]
        return seconds

    return run


def by_hand(options: argparse.Namespace) -> Callable[[int], float]:
    device = options.device
    clients = [
        (torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().to(device), torch.from_numpy(labels).to(device))
        for images, labels in users(options)
    ]
    model = Cnn(options.dropout).to(device).train()
    amp = torch.autocast(device, torch.bfloat16) if options.precision == "bf16" else nullcontext()
    random = np.random.default_rng(0)

    def run(rounds: int) -> float:
        begun = settled(device)
        for _ in range(rounds):
            states = []
            for client in random.choice(len(clients), COHORT, replace=False):
                inputs, targets = clients[client]
                local = copy.deepcopy(model)
                optimizer = torch.optim.SGD(local.parameters(), lr=LR)
                for batch in torch.randperm(len(targets), device=device).split(BATCH):
                    optimizer.zero_grad()
                    with amp:
                        loss = F.cross_entropy(local(inputs[batch]), targets[batch])
                    loss.backward()
                    optimizer.step()
                states.append(local.state_dict())
            model.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
        return settled(device) - begun

    return run


def by_pfl_processes(options: argparse.Namespace) -> Callable[[int], float]:
    """Several processes that start together; the slowest one counts."""
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(options.pfl_processes)
    ]

    def ask(question: str) -> list[str]:
        for worker in workers:
            assert worker.stdin
            worker.stdin.write(question + "\n")
            worker.stdin.flush()
        return [worker.stdout.readline() for worker in workers if worker.stdout]

    return lambda rounds: max(float(answer) for answer in ask(str(rounds)))


def serve(options: argparse.Namespace) -> None:
    """One of several pfl processes: a number of rounds in, seconds out, until the input ends."""
    run = by_pfl(options, COHORT // options.pfl_processes)
    for line in sys.stdin:
        print(run(int(line)), flush=True)


WAYS: dict[str, Callable[[argparse.Namespace], Callable[[int], float]]] = {
    "by hand": by_hand,
    "pfl": lambda options: by_pfl(options, COHORT),
    "fedfa": by_fedfa,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="tf32", help="of a GPU, for all ways")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--images", type=int, default=50, help="of a user")
    parser.add_argument("--dropout", type=float, nargs=2, default=(0.25, 0.5), metavar="RATE", help="0 0: none")
    parser.add_argument("--executor", default="auto", help="fedfa's")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--pfl-processes", type=int, default=0, metavar="N", help="also N pfl processes side by side")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
        options.precision = "fp32"
    exact = options.precision == "fp32"
    torch.backends.cudnn.benchmark = not exact
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not exact
    if options.worker:
        serve(options)
        return
    runs = {name: WAYS[name](options) for name in options.ways}
    if options.pfl_processes:
        runs[f"pfl, {options.pfl_processes} processes"] = by_pfl_processes(options)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for name, run in runs.items():
        print(f"{name}: warm-up of {run(min(options.rounds, 3)):.1f} s", flush=True)
    for _ in range(options.repeats):
        for name, run in runs.items():
            rates[name].append(options.rounds * COHORT / run(options.rounds))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    where = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(
        f"{where}, {options.precision}, dropout {options.dropout}, {options.rounds} rounds, {options.repeats} repeats"
    )
    for name, values in rates.items():
        ratios = "  ".join(f"{middle[name] / other:7.2f} x {base}" for base, other in middle.items() if base != name)
        print(f"{name:18} {middle[name]:9,.1f} trainings/s ({min(values):,.1f} to {max(values):,.1f})  {ratios}")
    if options.json and "fedfa" in rates:
        from fedfa.bench.base import Row, report
        from fedfa.cli.console import command_typed

        details = {"precision": options.precision, "rates": rates}
        span = {name: f"{min(values):.1f} to {max(values):.1f}" for name, values in rates.items()}
        rows = [
            Row(
                f"against {name}", "trainings/s", middle["fedfa"], middle[name], name,
                f"{span['fedfa']}, theirs {span[name]}",
                details | ({"pfl": version("pfl")} if "pfl" in name else {}),
            )
            for name in rates if name != "fedfa"
        ]  # fmt: skip
        options.json.write_bytes(report(command_typed("python", "benchmarks/pfl_cifar10.py"), {"pfl": rows}))


if __name__ == "__main__":
    main()
