"""Texts as token ids, and the cache that keeps them."""

import logging
from pathlib import Path

import pytest

from fedfa.learning.data import tokens
from tests.helpers.texts import WORDS

pytestmark = pytest.mark.usefixtures("cache_folder")


def test_texts_are_padded_cut_and_cached(
    weights: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["the film was good .", "bad", "zebra"]
    good, bad = WORDS.index("good"), WORDS.index("bad")
    expected = [[2, 11, 12, 13, good, 16, 3], [2, bad, 3, 0, 0, 0, 0], [2, 1, 3, 0, 0, 0, 0]]
    assert tokens.token_ids(texts, weights, 16).tolist() == expected
    assert tokens.token_ids(texts, weights, 4).tolist() == [[2, 11, 12, 3], [2, bad, 3, 0], [2, 1, 3, 0]]
    assert len(list(cache_folder.iterdir())) == 2
    encode, calls = tokens._encode, []
    monkeypatch.setattr(tokens, "_encode", lambda *arguments: calls.append(1) or encode(*arguments))
    assert tokens.token_ids(texts, weights, 16).tolist() == expected
    assert not calls
    assert tokens.token_ids([*texts[:2], "good"], weights, 16)[2].tolist() == [2, good, 3, 0, 0, 0, 0]
    (weights / "vocab.txt").write_text("\n".join(word.replace("zebra", "good") for word in [*WORDS, "zebra"]))
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 2  # other texts, another vocabulary
    for file in cache_folder.iterdir():
        file.write_bytes(file.read_bytes()[:-5])
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 3
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 3  # and written anew
    assert not caplog.records


def test_an_unwritable_cache_is_only_a_warning(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDFA_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "fedfa"):
        assert len(tokens.token_ids(["good", "bad"], weights, 16)) == 2
    assert [record.getMessage().count("cannot be written") for record in caplog.records] == [1]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert tokens.cache_folder().name == "cache"
    monkeypatch.delenv("FEDFA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert tokens.cache_folder() == Path("/x/fedfa")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert tokens.cache_folder() == Path("/home/me/.cache/fedfa")
