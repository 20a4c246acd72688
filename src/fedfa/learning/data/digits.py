"""The UCI handwritten digits: 1,797 images of 8 x 8 pixels, ten classes, shipped inside the package.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
1998, https://doi.org/10.24432/C50P49, its test part; licence CC BY 4.0. Pixels are counts 0..16.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from fedfa.learning.data.base import DataSet, Source

TEST_FRACTION = 0.2


def load(root: Path, generator: np.random.Generator) -> DataSet:
    """Pixels scaled to 0..1, and a random fifth held out for testing."""
    with (files("fedfa.learning.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = generator.permutation(len(labels))
    inputs = torch.from_numpy(images[order].astype(np.float32) / 16.0)
    targets = torch.from_numpy(labels[order].astype(np.int64))
    held_out = round(TEST_FRACTION * len(labels))
    return DataSet(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out], classes=10)


SOURCE = Source(load)
