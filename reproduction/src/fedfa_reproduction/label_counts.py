"""The labels of each client: counted if the data is available, and kept for when it is not."""

import json
from dataclasses import asdict

import polars as pl

from fedfa.errors import ConfigError
from fedfa.experiments.config import Experiment
from fedfa.files import atomic
from fedfa.learning.data.settings import DataSettings
from fedfa.settings import build
from fedfa_reproduction.matching import BEFORE
from fedfa_reproduction.study import Study

FILE = "label_counts.parquet"
SPLIT = "split"
"""The column that identifies the data, its split and the seed."""


def label_counts(study: Study, experiment: Experiment) -> pl.DataFrame | None:
    """Examples by client and label: from the data, else as kept before; None if there is neither."""
    try:
        counts = experiment.make_task().label_counts()
    except ConfigError:
        if not study.only_show:
            raise
        return kept_counts(study, experiment)
    if not study.only_show:
        keep(study, experiment, counts)
    return counts


def kept_counts(study: Study, experiment: Experiment) -> pl.DataFrame | None:
    everything = _read(study)
    for text in everything[SPLIT].unique(maintain_order=True):
        if _same(text, experiment):
            return everything.filter(pl.col(SPLIT) == text).drop(SPLIT)
    return None


def keep(study: Study, experiment: Experiment, counts: pl.DataFrame) -> None:
    """Beside the other records, so that they can be shown without the data."""
    known = kept_counts(study, experiment)
    if known is not None and known.equals(counts):
        return
    everything = _read(study)
    others = [text for text in everything[SPLIT].unique() if not _same(text, experiment)]
    own = counts.select(pl.lit(_name(experiment)).alias(SPLIT), pl.all())
    path = study.records.files / FILE
    with atomic(path) as file:
        pl.concat([everything.filter(pl.col(SPLIT).is_in(others)), own]).sort(SPLIT, maintain_order=True).write_parquet(
            file, compression="zstd", statistics=False
        )


def _read(study: Study) -> pl.DataFrame:
    path = study.records.files / FILE
    if path.is_file():
        return pl.read_parquet(path)
    return pl.DataFrame(schema={SPLIT: pl.String, "client": pl.Int64, "label": pl.String, "examples": pl.Int64})


def _name(experiment: Experiment) -> str:
    """The seed and the data settings that differ from their defaults, and from equal sizes."""
    usual = asdict(DataSettings(**BEFORE["data"]))
    own = {key: value for key, value in asdict(experiment.data).items() if value != usual[key] and key != "folder"}
    return json.dumps({"seed": experiment.seed} | own)


def _same(name: str, experiment: Experiment) -> bool:
    own = json.loads(name)
    seed = own.pop("seed")
    data = build(DataSettings, {**BEFORE["data"], **own, "folder": experiment.data.folder}, "data")
    return (seed, data) == (experiment.seed, experiment.data)
