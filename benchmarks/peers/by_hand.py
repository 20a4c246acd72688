"""The job as one writes it in an afternoon: deepcopy, torch.optim.SGD, averaging of state dicts."""

import copy

import numpy as np
import torch
from job import COHORT, WARM_UP, job, local_training, new_model

JOB = job()
random = np.random.default_rng(0)
model = new_model()
for _ in range(JOB.rounds + WARM_UP):
    states, weights = [], []
    for client in random.choice(len(JOB.clients), COHORT, replace=False):
        inputs, targets = JOB.clients[client]
        local = copy.deepcopy(model)
        local_training(local, inputs, targets)
        states.append(local.state_dict())
        weights.append(len(targets))
    share = torch.tensor(weights, dtype=torch.float32) / sum(weights)
    model.load_state_dict(
        {name: torch.tensordot(share, torch.stack([s[name] for s in states]), 1) for name in states[0]}
    )
    JOB.evaluate(model)
JOB.finish()
