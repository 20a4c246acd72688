"""Splits: disjoint, of the promised sizes, and as uneven as alpha says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfa.errors import ConfigError
from fedfa.experiments.config import from_table
from fedfa.learning.data import partition as partitions
from fedfa.learning.data.partition import FEW, Split, dirichlet, sizes_of
from tests.helpers.texts import bert_settings, error_of, write_sent140

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


def partition(kind: str, labels: np.ndarray, num_clients: int, generator: np.random.Generator, **settings: Any) -> Any:
    return partitions.partition(kind, Split(labels=labels, num_clients=num_clients, generator=generator, **settings))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-by-class", "iid", "shards"])
@pytest.mark.parametrize("clients", [1, 7, 50])
@pytest.mark.parametrize("size_sigma", [0.0, 0.5])
def test_splits_are_disjoint_and_no_client_is_empty(kind: str, clients: int, size_sigma: float) -> None:
    parts = partition(kind, LABELS, clients, generator(), alpha=0.1, size_sigma=size_sigma)
    together = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(together)) == len(together)
    assert all(len(part) > 0 for part in parts)
    sizes = {len(part) for part in parts}
    if kind == "shards" or (kind != "dirichlet-by-class" and size_sigma == 0):
        assert len(sizes) == 1
        assert len(together) > len(LABELS) - 2 * clients
    else:
        assert len(together) == len(LABELS)
        assert clients == 1 or len(sizes) > 1


@given(clients=st.integers(1, 60), more=st.integers(0, 1000), sigma=st.floats(0.01, 10.0), seed=st.integers(0, 99))
def test_every_client_gets_a_few_examples_and_all_are_used(clients: int, more: int, sigma: float, seed: int) -> None:
    count = clients + more
    sizes = sizes_of(count, clients, sigma, generator(seed))
    assert len(sizes) == clients
    assert sizes.sum() == count
    assert sizes.min() >= min(FEW, count // clients)


def test_the_sizes_are_lognormal() -> None:
    for sigma in (0.25, 0.5, 1.0):
        sizes = sizes_of(1_000_000, 5000, sigma, generator())
        assert np.log(sizes - FEW).std() == pytest.approx(sigma, rel=0.05)
    assert set(sizes_of(1438, 50, 0.0, generator())) == {28}


def spread(alpha: float) -> float:
    """Mean share of a client's most frequent class."""
    parts = dirichlet(np.full(40, 50), LABELS, alpha, generator(1))
    return float(np.mean([np.bincount(LABELS[part], minlength=10).max() / len(part) for part in parts]))


def test_smaller_alpha_is_more_uneven() -> None:
    extreme, uneven, even = spread(0.01), spread(0.5), spread(100.0)
    assert extreme > 0.75 > uneven > even
    assert even < 0.25


def test_shards_give_few_classes_per_client() -> None:
    parts = partition("shards", LABELS, 50, generator(), shards_per_client=2)
    assert np.mean([len(np.unique(LABELS[part])) for part in parts]) < 3


def test_natural_follows_the_owners() -> None:
    owners = ["ann", "bob", "ann", "cid", "bob"]
    parts = partition("natural", np.zeros(5), 3, generator(), owners=owners)
    assert [part.tolist() for part in parts] == [[0, 2], [1, 4], [3]]
    most = partition("natural", np.zeros(5), 2, generator(), owners=owners)
    assert [part.tolist() for part in most] == [[0, 2], [1, 4]]
    with pytest.raises(ConfigError, match="the data has only 3 owners; set clients = 3 or fewer"):
        partition("natural", np.zeros(5), 4, generator(), owners=owners)


def test_splits_depend_on_the_generator_alone() -> None:
    for kind in ("dirichlet", "dirichlet-by-class", "iid", "shards"):
        one, two = (partition(kind, LABELS, 5, generator(3)) for _ in range(2))
        assert all((a == b).all() for a, b in zip(one, two, strict=True))
        other = partition(kind, LABELS, 5, generator(4))
        assert any(len(a) != len(b) or (a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("kind", "clients", "settings", "message"),
    [
        ("dirichlet", 5, {"alpha": 0.0}, "alpha = 0.0: must be above 0"),
        ("dirichlet-by-class", 5, {"alpha": -1.0}, "alpha = -1.0: must be above 0"),
        ("iid", 0, {}, "clients = 0: must be at least 1"),
        ("iid", 3000, {}, "clients = 3000: more than the 2000 examples"),
        ("shards", 1500, {}, "3000 shards are more than the 2000 examples"),
        ("natural", 5, {}, "does not say who owns each example"),
        ("random", 5, {}, "partition = 'random': must be one of"),
    ],
)
def test_wrong_settings_are_named(kind: str, clients: int, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        partition(kind, LABELS, clients, generator(), **settings)  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)


def _natural(owners: list[str], clients: int, min_examples: int) -> list[np.ndarray]:
    generator = np.random.default_rng()
    split = Split(
        labels=np.zeros(10), num_clients=clients, generator=generator, owners=owners, min_examples=min_examples
    )
    return partitions.partition("natural", split)


def test_owners_with_few_examples_can_be_left_out(tmp_path: Path, weights: Path) -> None:
    owners = ["ann"] * 5 + ["bob"] * 2 + ["cid"] * 3
    assert [len(p) for p in _natural(owners, 0, 1)] == [5, 2, 3]
    assert "no owner has as many; the most is 5" in error_of(_natural, owners, 0, 6)
    assert "clients = 3: the data has only 2 owners with 3 examples or more; set clients = 2" in error_of(
        _natural, owners, 3, 3
    )
    write_sent140(tmp_path, [1] * 30 + [2] * 40 + [3] * 6)
    table = bert_settings(tmp_path, weights) | {
        "data": {"dataset": "sent140", "folder": str(tmp_path), "clients": 0, "partition": "natural"}
    }
    assert from_table(table).make_task().sizes == [27, 36, 6]
    table["data"]["min_examples"] = 10
    assert from_table(table).make_task().sizes == [27, 36]
    table["data"]["max_examples"] = 30
    assert from_table(table).make_task().sizes == [27, 30]
    del table["data"]["max_examples"]
    table["strategy"]["concurrency"] = 3
    assert "concurrency = 3: more than the 2 clients there are" in error_of(from_table(table).run, None)
    table["data"] |= {"fraction": 0.5, "min_examples": 1}
    assert sum(from_table(table).make_task().sizes) == 34
