"""Tiny text data sets and random weights for tiny models, made here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa.experiments.config import Experiment, from_table
from fedfa.learning.data import sst2

GOOD, BAD = ("good", "fine", "lovely"), ("bad", "awful", "sad")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, "the", "film", "was", "a", "tweet", "."]


def save_weights(folder: Path, kind: str = "Bert", seed: int = 0, dropout: float = 0.1, **settings: Any) -> Path:
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    if kind == "DistilBert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(WORDS), max_position_embeddings=40, pad_token_id=0, **sizes | settings
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


def sentence(rng: np.random.Generator, label: int) -> str:
    return f"the film was {' '.join(rng.choice((BAD, GOOD)[label], rng.integers(1, 6)))} ."


def write_sst2(root: Path, monkeypatch: pytest.MonkeyPatch, rows: int = 200) -> Path:
    """Separable sentences: what the words say is the label."""
    folder, rng = root / "SST-2", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, count in (("train.tsv", rows), ("dev.tsv", 40)):
        lines = [f"{sentence(rng, n % 2)} \t{n % 2}" for n in range(count)]
        (folder / name).write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    monkeypatch.setattr(sst2, "ROWS", {"train.tsv": rows, "dev.tsv": 40})
    return folder


def bert_settings(root: Path, weights: Path, **model: Any) -> dict[str, Any]:
    return {
        "data": {"dataset": "sst2", "folder": str(root), "clients": 4, "partition": "iid"},
        "model": {"name": "bert", "weights": str(weights), "max_length": 16} | model,
        "local": {"epochs": 1, "batch_size": 10, "lr": 0.01, "optimizer": "adamw"},
        "strategy": {"concurrency": 2, "window": 2},
        "stop": {"updates": 12},
    }


def bert_experiment(root: Path, weights: Path, **model: Any) -> Experiment:
    return from_table(bert_settings(root, weights, **model))


def error_of(function: Any, *arguments: Any) -> str:
    with pytest.raises(fedfa.ConfigError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_sent140(root: Path, days: list[int]) -> None:
    (root / "sent140").mkdir()
    rows = [f"{4 * (n % 2)},{n},Mon Apr 0{day} 22:19:45 PDT 2009,ann,a tweet" for n, day in enumerate(days)]
    (root / "sent140" / "some.csv").write_text("\n".join(["target,id,date,user,text", *rows]) + "\n")
