"""Model, data and training. The server and every site import this file.

The embedded digits: a site trains on part ``partition-id`` of ``num-partitions``, both from its --node-config.
"""

from collections.abc import Mapping
from typing import Any

from fedfa import LocalTraining, Task
from fedfa.deployment.flower import digits

LOCAL = LocalTraining(epochs=20, batch_size=32, lr=0.2)


def task(seed: int, node: Mapping[str, Any] | None) -> Task:
    """``node`` is None on the server, which needs the test data only."""
    return digits(seed, node, LOCAL)
