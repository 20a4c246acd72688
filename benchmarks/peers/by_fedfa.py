"""The job by fedfa, the records of the run written too; the whole call of simulate is on the clock.

It runs twice: the first run prepares the model and is reported on its own.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from job import BATCH, BUFFER, COHORT, EPOCHS, LR, job, new_model

import fedfa

JOB = job()
task = fedfa.Task(
    model=new_model,
    clients=JOB.clients,
    test=JOB.test,
    local=fedfa.LocalTraining(epochs=EPOCHS, batch_size=BATCH, lr=LR),
)


def run(rounds: int) -> tuple[float, float, str]:
    """Trainings per second, the last accuracy, and the executor that was taken."""
    strategy = fedfa.FedAvg(concurrency=COHORT)
    if JOB.mode == "fedbuff":
        strategy = fedfa.FedBuff(concurrency=COHORT, buffer=BUFFER, refill="batch", staleness="constant")
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        done = fedfa.simulate(
            strategy, task, stop=fedfa.Stop(updates=rounds * COHORT), engine={"evaluate_every": COHORT},
            out=Path(folder) / "run",
        )  # fmt: skip
        return rounds * COHORT / (time.perf_counter() - begun), done.final_accuracy, done.manifest["executor"]


first, _, _ = run(JOB.rounds)
speed, accuracy, executor = run(JOB.rounds)
JOB.write(speed, accuracy, "fedfa", first=first, executor=executor)
