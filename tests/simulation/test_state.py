"""Which clients are idle."""

import numpy as np

from fedfa.simulation.state import Idle


def test_idle_clients_are_drawn_uniformly_and_never_twice() -> None:
    rng = np.random.default_rng(0)
    idle = Idle(10)
    hits = np.zeros(10)
    out: list[int] = []
    for _ in range(20_000):
        while len(out) < 4:
            client = idle.draw(rng.random())
            assert client not in out
            out.append(client)
            hits[client] += 1
        idle.put_back(out.pop(int(rng.integers(4))))
    assert idle.count == 7
    assert abs(hits / hits.mean() - 1).max() < 0.06
    assert len(idle.moved) <= 10
