"""Which data, and how it is split among the clients."""

from dataclasses import dataclass

from fedfa.errors import check
from fedfa.learning.data.partition import PARTITIONS
from fedfa.learning.data.registry import DATASETS
from fedfa.settings import one_of


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Which data, and how it is split among the clients."""

    dataset: str = "digits"
    folder: str = ""
    """Folder of the data set, unless it is embedded; by default FEDFA_DATA."""
    fraction: float = 1.0
    """Share of the examples to use, drawn at random, for quick tries."""
    clients: int = 50
    """0: all owners (natural)."""
    partition: str = "dirichlet"
    alpha: float = 0.5
    size_sigma: float = 0.5
    """How much the clients' sizes differ (dirichlet, iid): sigma of a lognormal; 0: equal sizes."""
    shards_per_client: int = 2
    min_examples: int = 1
    """Owners with fewer training examples are left out (natural)."""
    max_examples: int = 0
    """Most training examples per owner, the first ones (natural); 0: all."""

    def __post_init__(self) -> None:
        one_of(DATASETS, self.dataset, "dataset")
        one_of(PARTITIONS, self.partition, "partition")
        check(0 < self.fraction <= 1, "fraction", self.fraction, "must be above 0 and at most 1")
        every = "" if self.clients else "; 0 means every owner there is, with partition = 'natural'"
        good = self.clients >= 1 or (self.clients == 0 and self.partition == "natural")
        check(good, "clients", self.clients, f"must be at least 1{every}")
        check(self.alpha > 0, "alpha", self.alpha, "must be above 0")
        check(0 <= self.size_sigma <= 10, "size_sigma", self.size_sigma, "must be between 0 and 10")
        check(self.shards_per_client >= 1, "shards_per_client", self.shards_per_client, "must be at least 1")
        check(self.min_examples >= 1, "min_examples", self.min_examples, "must be at least 1")
        least = f"must be at least min_examples = {self.min_examples}, or 0 for no limit"
        good = self.max_examples == 0 or self.max_examples >= self.min_examples
        check(good, "max_examples", self.max_examples, f"{least}")
