"""The sliding window and long vectors: exact, and flat in K."""

from typing import Any

import numpy as np
import pytest
import torch

from fedfa.strategies.vectors import Summand, Window, blend


@pytest.mark.parametrize(("window", "weighting"), [(1, "uniform"), (5, "uniform"), (16, "examples"), (100, "uniform")])
def test_window_mean_does_not_drift_over_1e5_arrivals(window: int, weighting: str) -> None:
    rng = np.random.default_rng(window)
    results = (rng.normal(size=(997, 8)) * rng.choice([1e-3, 1.0, 1e3], size=(997, 1))).astype(np.float32)
    examples = rng.integers(1, 50, size=997).astype(float) if weighting == "examples" else np.ones(997)
    total = Window(results[0], 8, window)
    for i in range(100_000):
        n = examples[i % 997]
        total.add(Summand(results[i % 997], weight=n, head_weight=n))
        if i % 9973 == 0 or i == 99_999:
            kept = [j % 997 for j in range(max(0, i - window + 1), i + 1)]
            weights = examples[kept]
            naive = (results[kept].astype(np.float64) * weights[:, None]).sum(0) / weights.sum()
            scale = np.abs(results[kept]).max()
            np.testing.assert_allclose(total.mean(), naive, atol=1e-6 * scale, rtol=1e-6)


def test_a_huge_value_has_no_effect_after_it_left_the_window() -> None:
    total = Window(np.zeros(3, np.float32), 3, 4)
    for value in [1.0, 2.0, 1e30, 3.0] + [1.0] * 40:
        total.add(Summand(np.full(3, value, np.float32)))
    np.testing.assert_array_equal(total.mean(), np.ones(3, np.float32))


def test_long_vectors_take_the_blocked_and_threaded_path_to_the_same_result() -> None:
    rng = np.random.default_rng(0)
    length = (1 << 20) + 12_345
    results = rng.normal(size=(6, length)).astype(np.float32)
    total = Window(results[0], length - 1000, 3)
    for result in results:
        total.add(Summand(result, weight=2.0, head_weight=0.5))
    expected = results[3:].astype(np.float64).sum(0)
    np.testing.assert_allclose(total.total[:-1000], 0.5 * expected[:-1000], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(total.mean()[-1000:], expected[-1000:] / 3, rtol=1e-5, atol=1e-6)


def test_memory_of_a_long_vector_is_used_again_only_when_nobody_holds_it() -> None:
    model = np.zeros(1 << 23, np.float32)
    one = blend(model, model, 0.5)
    address, part, tensor = one.ctypes.data, one[5:10], torch.from_numpy(one)
    del one
    tensor.fill_(7.0)
    other = blend(model, model, 0.5)
    assert other.ctypes.data != address
    assert part.tolist() == [7.0] * 5
    del part
    again = blend(model, model, 0.5)
    assert again.ctypes.data != address
    del tensor
    assert blend(model, model, 0.5).ctypes.data == address
    assert not blend(model, model, 0.5).any()


class Counted(np.ndarray):
    """An array that counts the elements every operation on it reads."""

    elements = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, np.ndarray) else x for x in inputs]
        Counted.elements += sum(x.size for x in inputs if isinstance(x, Counted))
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) for x in out)
        done = getattr(ufunc, method)(*plain, **kwargs)
        return out[0] if out is not None else done.view(Counted)


@pytest.mark.parametrize(("length", "arrivals"), [(500, 1600), (1 << 17, 400)])
def test_work_per_arrival_is_flat_in_the_window(length: int, arrivals: int) -> None:
    """Counted, not timed: results are read as often with K = 4 as with K = 100 (in, out, and a quarter to renew)."""
    results = [np.full(length, float(i), np.float32).view(Counted) for i in range(7)]
    read = {}
    for size in (4, 100):
        window = Window(results[0], length, size)
        for number in range(size + arrivals):
            if number == size:
                Counted.elements = 0
            window.add(Summand(results[number % 7]))
        read[size] = Counted.elements / arrivals / length
    assert read[4] == pytest.approx(2.25, rel=0.05)
    assert read[100] == pytest.approx(2.25, rel=0.05)
