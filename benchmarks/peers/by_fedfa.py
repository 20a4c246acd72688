"""The job by fedfa, the records of the run written too; the whole call of simulate is on the clock."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from job import BATCH, BUFFER, COHORT, EPOCHS, LR, job, new_model

import fedfa
from fedfa.executors.registry import make_executor

JOB = job()
task = fedfa.Task(
    model=new_model,
    clients=JOB.clients,
    test=JOB.test,
    local=fedfa.LocalTraining(epochs=EPOCHS, batch_size=BATCH, lr=LR),
)
executor = make_executor("auto", task, 0)


def run(rounds: int) -> tuple[float, float]:
    """Trainings per second, and the last accuracy."""
    strategy = fedfa.FedAvg(concurrency=COHORT)
    if JOB.mode == "fedbuff":
        strategy = fedfa.FedBuff(concurrency=COHORT, buffer=BUFFER, refill="batch", staleness="constant")
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        done = fedfa.simulate(
            strategy, task, stop=fedfa.Stop(updates=rounds * COHORT), engine={"evaluate_every": COHORT},
            executor=executor, out=Path(folder) / "run",
        )  # fmt: skip
        return rounds * COHORT / (time.perf_counter() - begun), done.final_accuracy


run(JOB.rounds)  # traces the model
JOB.write(*run(JOB.rounds), "fedfa")
