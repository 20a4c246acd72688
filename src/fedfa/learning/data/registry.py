"""All data sets by name. To add one: a file here, and a row in ``IMAGES`` or ``TEXTS``."""

import numpy as np

from fedfa.learning.data import cifar10, digits, femnist, rent_the_runway, sent140, sst2, twitter_entity
from fedfa.learning.data.base import DataSet, Source
from fedfa.learning.data.text import TextSet
from fedfa.settings import one_of

IMAGES: dict[str, Source[DataSet]] = {
    "digits": digits.SOURCE,
    "cifar10": cifar10.SOURCE,
    "femnist": femnist.SOURCE,
}
TEXTS: dict[str, Source[TextSet]] = {
    "sst2": sst2.SOURCE,
    "sent140": sent140.SOURCE,
    "twitter_entity": twitter_entity.SOURCE,
    "rent_the_runway": rent_the_runway.SOURCE,
}
DATASETS: dict[str, Source[DataSet] | Source[TextSet]] = {**IMAGES, **TEXTS}


def load(name: str, folder: str, generator: np.random.Generator) -> DataSet | TextSet:
    """The named data set; ``folder`` is searched for all but the embedded ones."""
    return DATASETS[one_of(DATASETS, name, "dataset")].read(name, folder, generator)
