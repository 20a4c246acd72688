"""Tweets about entities, from a tiny copy of the real form."""

from pathlib import Path

import numpy as np

from fedfa.learning.data import twitter_entity
from fedfa.learning.data.registry import load
from tests.helpers.texts import error_of


def test_twitter_entity_keeps_the_paraphrases_of_a_tweet_on_one_side(tmp_path: Path) -> None:
    folder = tmp_path / "twitter_entity"
    folder.mkdir()
    assert "twitter_training.csv: is missing; get" in error_of(
        load, "twitter_entity", str(tmp_path), np.random.default_rng(0)
    )
    names = list(twitter_entity.CLASSES)
    rows = [
        f'{number},{entity},{names[number % 4]},"{entity} {number}, ""said"" {version}"'
        for version in range(3)  # in this order, the paraphrases of a tweet are far apart
        for entity, start in (("Xbox", 0), ("Nvidia", 100))
        for number in range(start, start + 12)
    ]
    rows += ["7,Xbox,Neutral,", '8,Xbox,Neutral,"  "', '9,Xbox,Positive,"two\nlines"']
    (folder / "twitter_training.csv").write_text("\n".join(rows) + "\n")
    (folder / "twitter_validation.csv").write_text("ignored")
    data = load("twitter_entity", str(tmp_path), np.random.default_rng(0))
    assert len(data.train_texts) + len(data.test_texts) == 73
    assert {text.partition(",")[0] for text in data.test_texts} == {
        "Xbox 4",
        "two\nlines",
        "Xbox 9",
        "Nvidia 104",
        "Nvidia 109",
    }
    assert not {text.partition(",")[0] for text in data.train_texts} & {"Xbox 4", "Xbox 9", "Nvidia 104", "Nvidia 109"}
    assert 'Xbox 0, "said" 0' in data.train_texts
    assert set(data.owners or ()) == {"Xbox", "Nvidia"}
    assert data.classes == 4
    assert data.train_labels[:4].tolist() == [0, 1, 2, 3]
    (folder / "twitter_training.csv").write_text("1,Xbox,Neutral\n")
    message = error_of(load, "twitter_entity", str(tmp_path), np.random.default_rng(0))
    assert "has 3 columns, not 4" in message
    assert "jp797498e/twitter-entity-sentiment-analysis" in message
