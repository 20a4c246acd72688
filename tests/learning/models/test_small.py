"""The small models."""

import torch

import fedfa
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.models.small import cnn


def test_the_embedded_cnn_trains() -> None:
    task = data_task(DataSettings(clients=10), ModelSettings(name="cnn", hidden=16), fedfa.LocalTraining(), seed=1)
    assert cnn()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    run = fedfa.simulate(fedfa.FedFaParam(concurrency=4, window=2), task, stop=fedfa.Stop(updates=60))
    assert run.best_accuracy > 0.5
