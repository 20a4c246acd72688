"""Texts as token ids, computed once and kept in a cache folder under a hash of everything that they depend on.

The folder is $FEDFA_CACHE, else $XDG_CACHE_HOME/fedfa, else ~/.cache/fedfa. It may be deleted at any time.
"""

import hashlib
import json
import logging
import os
from pathlib import Path

import numpy as np
import torch

from fedfa.errors import ConfigError, check, in_a_line, require
from fedfa.files import atomic
from fedfa.learning.data.base import DataSet
from fedfa.learning.data.text import TextSet
from fedfa.learning.models.bert import REMEDY, from_folder, padding

AT_A_TIME = 10_000
"""Texts per call; limits the memory of the tokenizer's own objects."""

logger = logging.getLogger("fedfa")


def tokenised(texts: TextSet, folder: Path, max_length: int) -> DataSet:
    """The data set that a model from this folder can read."""
    ids = torch.from_numpy(token_ids(texts.train_texts + texts.test_texts, folder, max_length))
    count = len(texts.train_texts)
    return DataSet(
        ids[:count],
        torch.from_numpy(texts.train_labels),
        ids[count:],
        torch.from_numpy(texts.test_labels),
        texts.classes,
        texts.owners,
    )


def token_ids(texts: list[str], folder: Path, max_length: int) -> np.ndarray:
    """One row per text, cut to ``max_length`` and padded to the longest; from the cache if it is there."""
    path = cache_folder() / f"tokens-{_key(texts, folder, max_length)}.npy"
    try:
        found = np.load(path, allow_pickle=False)
        if found.dtype == np.int32 and found.ndim == 2 and len(found) == len(texts):
            return found
    except (OSError, ValueError, EOFError):
        pass  # not there, or damaged
    ids = _encode(texts, folder, max_length)
    try:
        with atomic(path) as file:
            np.save(file, ids)
    except OSError as error:
        if not path.exists():  # else another process was faster
            logger.warning(
                "%s: cannot be written (%s); texts are tokenised again each time", path.parent, error.strerror
            )
    return ids


def cache_folder() -> Path:
    if own := os.environ.get("FEDFA_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedfa"


def _key(texts: list[str], folder: Path, max_length: int) -> str:
    state = hashlib.blake2b(json.dumps([max_length, texts]).encode(), digest_size=16)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".txt", ".model"):  # all but the weights
            state.update(f"\0{path.name}\0".encode())
            state.update(path.read_bytes())
    return state.hexdigest()


def _encode(texts: list[str], folder: Path, max_length: int) -> np.ndarray:
    config, tokenizer = from_folder("AutoConfig", folder), from_folder("AutoTokenizer", folder)
    longest = getattr(config, "max_position_embeddings", max_length)
    check(max_length <= longest, "model.max_length", max_length, f"more than the {longest} tokens this model reads")
    known, wanted = len(tokenizer), config.vocab_size
    require(known > 0.9 * wanted, f"{folder}: the vocabulary has {known:,} words, not {wanted:,}: cut short? {REMEDY}")
    rows: list[list[int]] = []
    for start in range(0, len(texts), AT_A_TIME):
        part = texts[start : start + AT_A_TIME]
        try:
            rows += tokenizer(part, truncation=True, max_length=max_length, padding=False)["input_ids"]
        except Exception as error:  # whatever a damaged vocabulary makes the library raise
            raise ConfigError(f"{folder}: the tokenizer fails ({in_a_line(error)}); {REMEDY}") from error
    ids = np.full((len(rows), max(map(len, rows))), padding(config), np.int32)
    for row, words in zip(ids, rows, strict=True):
        row[: len(words)] = words
    return ids
