"""Tweets about 32 games and companies, with their sentiment; each of these entities is a client.

Reads ``twitter_training.csv`` of Kaggle's "Twitter Sentiment Analysis". The file has about six paraphrases of each
tweet under one id: every fifth *id* of an entity is held out for testing, so that no tweet is on both sides.
"""

from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl

from fedfa.errors import require
from fedfa.learning.data.base import Source, held_out, subfolder
from fedfa.learning.data.text import TextSet, class_numbers, read_csv, split

CLASSES = {"Negative": 0, "Neutral": 1, "Positive": 2, "Irrelevant": 3}
REMEDY = (
    "get twitter_training.csv of https://www.kaggle.com/datasets/jp797498e/twitter-entity-sentiment-analysis "
    '("Twitter Sentiment Analysis") and put it there'
)


def find(root: Path) -> Path:
    return subfolder(root, ("twitter_entity",), REMEDY)


def load(root: Path, generator: np.random.Generator) -> TextSet:
    path = find(root) / "twitter_training.csv"
    require(path.is_file(), f"{path}: is missing; {REMEDY}")
    frame = read_csv(path, ("id", "entity", "sentiment", "text"), REMEDY, header=False)
    frame = frame.filter(pl.col("text").str.strip_chars() != "")
    owners = frame["entity"].to_list()
    of_row = list(zip(owners, frame["id"].to_list(), strict=True))
    tweets = list(dict.fromkeys(of_row))
    chosen = set(compress(tweets, held_out((entity for entity, _ in tweets), every=5)))
    test = np.array([tweet in chosen for tweet in of_row], bool)
    labels = class_numbers(frame["sentiment"], CLASSES, path)
    return split(frame["text"].to_list(), labels, owners, test, len(CLASSES), path)


SOURCE = Source(load, find, REMEDY)
