"""Ways to split a data set among clients: each returns one array of positions per client, disjoint.

dirichlet           Hsu et al., arXiv:1909.06335: each client draws its class proportions from Dir(alpha) and takes
                    its examples from what is left
dirichlet-by-class  each class is cut among the clients by one Dir(alpha) draw; sizes differ
iid                 at random
shards              McMahan et al., 2017: sorted by label, cut into shards, a few shards per client
natural             by a given owner of each example, such as the user who wrote it

The sizes of dirichlet and iid are lognormal, or equal, as in Hsu et al., with ``size_sigma`` = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedfa.errors import check
from fedfa.settings import one_of

Positions = list[np.ndarray]

FEW = 4
"""The least number of examples of a client, where there are as many for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The input of a partition."""

    labels: np.ndarray
    num_clients: int
    generator: np.random.Generator
    alpha: float = 0.5
    size_sigma: float = 0.5
    shards_per_client: int = 2
    owners: Sequence[object] | None = None
    min_examples: int = 1
    max_examples: int = 0


def partition(kind: str, split: Split) -> Positions:
    """Split in the named way."""
    one_of(PARTITIONS, kind, "partition")
    num_clients, fewest = split.num_clients, 0 if kind == "natural" else 1
    check(num_clients >= fewest, "clients", num_clients, f"must be at least {fewest}")
    enough = kind == "natural" or num_clients <= len(split.labels)
    check(enough, "clients", num_clients, f"more than the {len(split.labels)} examples there are")
    return PARTITIONS[kind](split)


def sizes_of(num_examples: int, num_clients: int, sigma: float, generator: np.random.Generator) -> np.ndarray:
    """How many examples each client gets: a few, and a lognormal share of the others.

    Equal sizes leave the remainder out.
    """
    mean = num_examples // num_clients
    if sigma == 0:
        return np.full(num_clients, mean)
    few = min(FEW, mean)
    shares = generator.lognormal(0.0, sigma, num_clients).cumsum()
    ends = np.rint(shares / shares[-1] * (num_examples - few * num_clients)).astype(int)
    return few + np.diff(ends, prepend=0)


def iid(sizes: np.ndarray, num_examples: int, generator: np.random.Generator) -> Positions:
    order = generator.permutation(num_examples)[: sizes.sum()]
    return np.split(order, sizes.cumsum()[:-1])


def dirichlet(sizes: np.ndarray, labels: np.ndarray, alpha: float, generator: np.random.Generator) -> Positions:
    check(alpha > 0, "alpha", alpha, "must be above 0")
    classes, positions = np.unique(labels, return_inverse=True)
    pools = [generator.permutation(np.flatnonzero(positions == c)) for c in range(len(classes))]
    left = np.array([len(pool) for pool in pools])
    parts: Positions = []
    for size in sizes:
        wanted = generator.dirichlet(np.full(len(classes), alpha))
        taken = np.zeros(len(classes), int)
        while (missing := size - taken.sum()) > 0:
            share = np.where(left > taken, wanted, 0.0)
            if share.sum() == 0:  # the client's own classes are used up: fall back to what is left
                share = np.maximum(left - taken, 0).astype(float)
            drawn = generator.multinomial(missing, share / share.sum())
            taken = np.minimum(taken + drawn, left)
        parts.append(np.concatenate([pool[n - k : n] for pool, n, k in zip(pools, left, taken, strict=True)]))
        left = left - taken
    return parts


def dirichlet_by_class(labels: np.ndarray, num_clients: int, alpha: float, generator: np.random.Generator) -> Positions:
    """Every client gets at least one example: an empty one takes one from the largest."""
    check(alpha > 0, "alpha", alpha, "must be above 0")
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(generator.dirichlet(np.full(num_clients, alpha)))[:-1] * len(members)
        for part, piece in zip(parts, np.split(members, cuts.astype(int)), strict=True):
            part.extend(piece.tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [np.array(part) for part in parts]


def shards(labels: np.ndarray, num_clients: int, shards_per_client: int, generator: np.random.Generator) -> Positions:
    count = num_clients * shards_per_client
    check(shards_per_client >= 1, "shards_per_client", shards_per_client, "must be at least 1")
    check(
        count <= len(labels),
        "shards_per_client",
        shards_per_client,
        f"{count} shards are more than the {len(labels)} examples",
    )
    by_label = np.argsort(labels, kind="stable")
    size = len(labels) // count
    pieces = by_label[: size * count].reshape(count, size)[generator.permutation(count)]
    return list(pieces.reshape(num_clients, shards_per_client * size))


def natural(owners: Sequence[object], num_clients: int, min_examples: int = 1, max_examples: int = 0) -> Positions:
    """The owners with the most examples (all, for 0 clients), in the order in which they first appear.

    Of each, the first ``max_examples`` (all, for 0).
    """
    parts: dict[object, list[int]] = {}
    for position, owner in enumerate(owners):
        parts.setdefault(owner, []).append(position)
    most = max(map(len, parts.values()), default=0)
    enough = {owner: part for owner, part in parts.items() if len(part) >= min_examples}
    check(len(enough) > 0, "min_examples", min_examples, f"no owner has as many; the most is {most}")
    at_least = f" with {min_examples} examples or more" if min_examples > 1 else ""
    check(
        num_clients <= len(enough),
        "clients",
        num_clients,
        f"the data has only {len(enough)} owners{at_least}; set clients = {len(enough)} or fewer",
    )
    largest = set(sorted(enough, key=lambda owner: -len(enough[owner]))[: num_clients or None])
    return [np.array(part[: max_examples or None]) for owner, part in enough.items() if owner in largest]


def _sizes(split: Split) -> np.ndarray:
    return sizes_of(len(split.labels), split.num_clients, split.size_sigma, split.generator)


def _natural(split: Split) -> Positions:
    check(split.owners is not None, "partition", "natural", "this data set does not say who owns each example")
    return natural(split.owners or (), split.num_clients, split.min_examples, split.max_examples)


PARTITIONS: dict[str, Callable[[Split], Positions]] = {
    "dirichlet": lambda split: dirichlet(_sizes(split), split.labels, split.alpha, split.generator),
    "dirichlet-by-class": lambda split: dirichlet_by_class(
        split.labels, split.num_clients, split.alpha, split.generator
    ),
    "iid": lambda split: iid(_sizes(split), len(split.labels), split.generator),
    "shards": lambda split: shards(split.labels, split.num_clients, split.shards_per_client, split.generator),
    "natural": _natural,
}
"""All partitions by name. To add one: a function here, and a row."""
