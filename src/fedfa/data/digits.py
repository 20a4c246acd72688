"""The UCI handwritten digits: 1,797 images of 8 x 8 pixels, ten classes, shipped inside the package.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
1998, https://doi.org/10.24432/C50P49, its test part; licence CC BY 4.0. Pixels are counts 0..16.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Split:
    """Training and test data."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def load(generator: np.random.Generator) -> Split:
    """Pixels scaled to 0..1, and a random fifth held out for testing."""
    with (files("fedfa.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = generator.permutation(len(labels))
    inputs = torch.from_numpy(images[order].astype(np.float32) / 16.0)
    targets = torch.from_numpy(labels[order].astype(np.int64))
    held_out = round(TEST_FRACTION * len(labels))
    return Split(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out])
