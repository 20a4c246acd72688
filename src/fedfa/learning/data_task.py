"""A task from a data set, a split and a model, by their settings."""

from dataclasses import replace

import numpy as np

from fedfa.errors import ConfigError, check
from fedfa.learning.data.base import DataSet
from fedfa.learning.data.partition import Split, partition
from fedfa.learning.data.registry import DATASETS, IMAGES, TEXTS
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data.tokens import tokenised
from fedfa.learning.local import LocalTraining
from fedfa.learning.models.bert import find_weights
from fedfa.learning.models.registry import MODELS, label, make
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.task import Task
from fedfa.randomness import SPLIT, keyed
from fedfa.settings import one_of


def check_fit(data: DataSettings, model: ModelSettings) -> None:
    """Raise a ConfigError unless the model can read the data set."""
    holds, reads = (
        "texts" if data.dataset in TEXTS else "images",
        MODELS[one_of(MODELS, model.name, "model.name")].reads,
    )
    fitting = " or ".join(name for name, kind in MODELS.items() if kind.reads == holds)
    check(reads == holds, "model.name", model.name, f"reads {reads}, {data.dataset} holds {holds}; use {fitting}")


def data_task(data: DataSettings, model: ModelSettings, local: LocalTraining, seed: int) -> Task:
    """A data set, split among clients, with a suitable model."""
    check_fit(data, model)
    generator = np.random.Generator(np.random.Philox(key=keyed(seed, SPLIT)))
    rows, model = _read(data, model, generator)
    rows = rows.part(data.fraction, generator)
    try:
        parts = partition(
            data.partition,
            Split(
                labels=rows.train_targets.numpy(), num_clients=data.clients, generator=generator, alpha=data.alpha,
                size_sigma=data.size_sigma, shards_per_client=data.shards_per_client, owners=rows.owners,
                min_examples=data.min_examples, max_examples=data.max_examples,
            ),
        )  # fmt: skip
    except ConfigError as error:
        raise error.inside("data") from error
    shape, classes = tuple(rows.train_inputs.shape[1:]), rows.classes  # the model must not keep a reference to the data
    order, sizes = np.concatenate(parts), [len(part) for part in parts]
    inputs, targets = rows.train_inputs[order].split(sizes), rows.train_targets[order].split(sizes)
    return Task(
        model=lambda: make(model, shape, classes),
        clients=list(zip(inputs, targets, strict=True)),
        test=(rows.test_inputs, rows.test_targets),
        local=local,
        name=f"{data.dataset}/{label(model)}",
    )


def _read(data: DataSettings, model: ModelSettings, generator: np.random.Generator) -> tuple[DataSet, ModelSettings]:
    """Examples in the model's form, and the model settings with the weights' folder."""
    if data.dataset in IMAGES:
        return IMAGES[data.dataset].read(data.dataset, data.folder, generator), model
    weights = find_weights(model.weights, DATASETS[data.dataset].folder(data.dataset, data.folder))
    texts = TEXTS[data.dataset].read(data.dataset, data.folder, generator)
    return tokenised(texts, weights, model.max_length), replace(model, weights=str(weights))


def named_task(name: str, seed: int) -> Task:
    """The embedded task with its default settings."""
    check(name == "digits", "task", name, "must be 'digits' or a fedfa.Task")
    return data_task(DataSettings(), ModelSettings(), LocalTraining(), seed)
