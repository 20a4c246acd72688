"""SST-2 (Socher et al., EMNLP 2013, as in GLUE): phrases of film reviews, negative (0) or positive (1).

Reads GLUE's ``train.tsv`` and ``dev.tsv``. The labels of GLUE's test part are not public, so dev is the test set.
"""

from pathlib import Path

import numpy as np

from fedfa.errors import ConfigError, require
from fedfa.learning.data.base import Source, subfolder
from fedfa.learning.data.text import TextSet, class_numbers, count_rows

ROWS = {"train.tsv": 67_349, "dev.tsv": 872}
REMEDY = "get https://dl.fbaipublicfiles.com/glue/data/SST-2.zip and unpack it there"


def find(root: Path) -> Path:
    return subfolder(root, ("sst2", "SST-2"), REMEDY)


def load(root: Path, generator: np.random.Generator) -> TextSet:
    folder = find(root)
    return TextSet(*_read(folder / "train.tsv"), *_read(folder / "dev.tsv"), classes=2)


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    """Splits at raw tabs and line feeds: nothing is quoted or escaped, and sentences contain quotes."""
    require(path.is_file(), f"{path}: is missing; {REMEDY}")
    try:
        header, *lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {REMEDY}") from error
    require(header.strip() == "sentence\tlabel", f"{path}: does not begin with sentence<TAB>label; {REMEDY}")
    count_rows(path, len(lines), ROWS[path.name], REMEDY)
    texts, labels = [], []
    for line in lines:
        text, _, label = line.rstrip("\r").rpartition("\t")
        texts.append(text.strip())
        labels.append(label)
    return texts, class_numbers(labels, {"0": 0, "1": 1}, path)


SOURCE = Source(load, find, REMEDY)
