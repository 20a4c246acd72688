"""The job by FLGo: a task of its own, its FedAvg, or its FedBuff on its virtual clock."""

# pyright: reportMissingImports=false
# ruff: noqa: E402

import os
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from job import BATCH, EPOCHS, LR, WARM_UP, job

JOB = job()
sys.argv[1:] = []  # FLGo reads the command line, too
folder = mkdtemp()
os.chdir(folder)
sys.path.insert(0, folder)

import flgo
import flgo.algorithm.fedavg as fedavg
import flgo.algorithm.fedbuff as fedbuff
from flgo.experiment.logger import BasicLogger

CONFIG = """
import __main__, torch
from torch.utils.data import TensorDataset
from job import new_model as get_model
train_data = [TensorDataset(*client) for client in __main__.JOB.clients]
test_data = TensorDataset(*__main__.JOB.test)
def data_to_device(batch, device):
    return batch[0].to(device), batch[1].to(device)
def compute_loss(model, batch, device):
    inputs, targets = data_to_device(batch, device)
    return {"loss": torch.nn.functional.cross_entropy(model(inputs), targets)}
def eval(model, loader, device):
    return {}
"""


class Logger(BasicLogger):
    """Judges the server's model in one piece, as the other frameworks' workers do."""

    begun = False

    def log_once(self, *args: Any, **kwargs: Any) -> None:
        if self.begun:  # the first call is before the first round
            JOB.evaluate(self.coordinator.model)
        self.begun = True


def counted(reply: Any) -> Any:
    def count(self: Any, package: Any) -> Any:
        JOB.trainings += 1
        return reply(self, package)

    return count


algorithm: Any = fedbuff if JOB.mode == "fedbuff" else fedavg
algorithm.Client.reply = counted(algorithm.Client.reply)
Path("digits_config.py").write_text(CONFIG)
flgo.gen_direct_task_from_file("digits_task", "digits_config.py", folder)
aggregations = 2 if JOB.mode == "fedbuff" else 1
options = {
    "num_rounds": aggregations * (JOB.rounds + WARM_UP), "eval_interval": aggregations, "proportion": 0.2,
    "num_epochs": EPOCHS, "batch_size": BATCH, "learning_rate": LR, "learning_rate_decay": 1.0, "train_holdout": 0.0,
    "aggregate": "other", "sample": "uniform", "no_log_console": True, "no_tqdm": True, "torch_num_threads": 1,
}  # fmt: skip
if JOB.mode == "fedbuff":
    options |= {"algo_para": [0.1, 1.0], "responsiveness": "LN-8-25"}
flgo.init("digits_task", algorithm, options, Logger=Logger).run()
JOB.finish("flgo")
