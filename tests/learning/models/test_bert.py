"""Text data sets on tiny copies of the real formats, and BERT on a tiny random model; both are made here."""

import gzip
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa.experiments.config import Experiment, from_table
from fedfa.learning.data import sent140, sst2, tokens, twitter_entity
from fedfa.learning.data.base import held_out
from fedfa.learning.data.partition import Split, partition
from fedfa.learning.data.registry import load
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data.text import TextSet
from fedfa.learning.data_task import data_task
from fedfa.learning.flat import Layout
from fedfa.learning.models.registry import make
from fedfa.learning.models.settings import ModelSettings
from fedfa.report.page import write_report

GOOD, BAD = ("good", "fine", "lovely"), ("bad", "awful", "sad")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, "the", "film", "was", "a", "tweet", "."]
REAL = os.environ.get("FEDFA_DATA", "")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDFA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return save_weights(tmp_path / "tiny-bert")


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


def settings(root: Path, weights: Path, **model: Any) -> dict[str, Any]:
    return {
        "data": {"dataset": "sst2", "folder": str(root), "clients": 4, "partition": "iid"},
        "model": {"name": "bert", "weights": str(weights), "max_length": 16} | model,
        "local": {"epochs": 1, "batch_size": 10, "lr": 0.01, "optimizer": "adamw"},
        "strategy": {"concurrency": 2, "window": 2},
        "stop": {"updates": 12},
    }


def experiment(root: Path, weights: Path, **model: Any) -> Experiment:
    return from_table(settings(root, weights, **model))


def error(function: Any, *arguments: Any) -> str:
    with pytest.raises(fedfa.ConfigError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The data sets -------------------------------------------------------------------------------------------------------


def test_sst2_takes_quotes_and_odd_line_ends_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sst2(tmp_path, monkeypatch)
    text = "sentence\tlabel\n\"an unpaired quote \t0\nof \x85 a `` kind '' \t1\ncr\xe8me \t1\n"
    (folder / "dev.tsv").write_text(text, "utf-8")
    monkeypatch.setitem(sst2.ROWS, "dev.tsv", 3)
    for where in (tmp_path, folder):
        data = load("sst2", str(where), np.random.default_rng(0))
        assert data.test_texts == ['"an unpaired quote', "of \x85 a `` kind ''", "cr\xe8me"]
        assert data.test_labels.tolist() == [0, 1, 1]
        assert len(data.train_texts) == len(data.train_labels) == 200
        assert (data.owners, data.classes) == (None, 2)


def test_damaged_sst2_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message() -> str:
        return error(load, "sst2", str(tmp_path), np.random.default_rng(0))

    assert "holds no sst2 or SST-2" in message()
    assert "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip" in message()
    train = write_sst2(tmp_path, monkeypatch) / "train.tsv"
    whole = train.read_text()
    train.write_text("\n".join(whole.split("\n")[:150]))
    assert "train.tsv: holds 149 rows, not 200: cut short? get https" in message()
    train.write_text(whole.replace("\t1\n", "\t7\n", 1))
    assert "train.tsv: label '7' is not one of 0, 1: damaged?" in message()
    train.write_text("no header\n")
    assert "does not begin with sentence<TAB>label" in message()
    train.write_bytes(b"sentence\tlabel\n\xff\xfe\t0\n")
    assert "train.tsv: cannot be read ('utf-8' codec" in message()
    train.unlink()
    assert "train.tsv: is missing" in message()


def tweet(target: int, number: int, user: str, text: str) -> str:
    quoted = text.replace('"', '""')
    return f'"{target}","{number}","Mon Apr 06 22:19:{number:02d} PDT 2009","NO_QUERY","{user}","{quoted}"'


def test_sent140_in_its_public_form_is_split_by_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [tweet(0, n, "ann", f"tweet {n}") for n in range(20)]
    rows += [tweet(4, 20, "bob", 'caf\xe9, "so good",\nreally'), tweet(4, 21, "bob", "\xbd price")]
    (tmp_path / sent140.PUBLIC).write_bytes("\n".join(rows).encode("latin-1") + b"\n")
    monkeypatch.setattr(sent140, "ROWS", 22)
    data = load("sent140", str(tmp_path), np.random.default_rng(0))
    assert data.test_texts == ["tweet 9", "tweet 19"]  # every tenth of each user
    assert data.train_texts[-2:] == ['caf\xe9, "so good",\nreally', "\xbd price"]
    assert data.train_labels.tolist() == [0] * 18 + [1, 1]
    assert data.owners == ["ann"] * 18 + ["bob"] * 2
    monkeypatch.setattr(sent140, "ROWS", 1_600_000)
    message = error(load, "sent140", str(tmp_path), np.random.default_rng(0))
    assert "holds 22 rows, not 1,600,000: cut short?" in message
    assert "http://help.sentiment140.com/for-students" in message


def write_sent140(root: Path, days: list[int]) -> None:
    (root / "sent140").mkdir()
    rows = [f"{4 * (n % 2)},{n},Mon Apr 0{day} 22:19:45 PDT 2009,ann,a tweet" for n, day in enumerate(days)]
    (root / "sent140" / "some.csv").write_text("\n".join(["target,id,date,user,text", *rows]) + "\n")


def test_sent140_in_the_compact_form_is_split_by_hour(tmp_path: Path) -> None:
    folder = tmp_path / "sentiment140"
    folder.mkdir()
    assert "nor a .csv with the header target,id,date,user,text" in error(
        load, "sent140", str(tmp_path), np.random.default_rng(0)
    )
    (folder / "another.csv").write_text("a,b\n1,2\n")
    file = folder / "some.csv"
    rows = [f"{4 * (n % 2)},{n},Mon Apr 06 {22 + n // 20}:19:45 PDT 2009,ann,caf\xe9 {n}" for n in range(40)]
    file.write_text("\n".join(["target,id,date,user,text", *rows]), "utf-8")
    assert "some.csv: does not end with the end of a line: cut short?" in error(
        load, "sent140", str(tmp_path), np.random.default_rng(0)
    )
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    data = load("sent140", str(tmp_path), np.random.default_rng(0))
    assert set(data.owners or ()) == {"Mon Apr 06 22 2009", "Mon Apr 06 23 2009"}
    assert data.test_texts == [f"caf\xe9 {n}" for n in (9, 19, 29, 39)]
    file.write_text(file.read_text("utf-8").replace("\n4,", "\n2,"), "utf-8")
    assert "some.csv: label '2' is not one of 0, 4" in error(load, "sent140", str(tmp_path), np.random.default_rng(0))


def test_twitter_entity_keeps_the_paraphrases_of_a_tweet_on_one_side(tmp_path: Path) -> None:
    folder = tmp_path / "twitter_entity"
    folder.mkdir()
    assert "twitter_training.csv: is missing; get" in error(
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
    message = error(load, "twitter_entity", str(tmp_path), np.random.default_rng(0))
    assert "has 3 columns, not 4" in message
    assert "jp797498e/twitter-entity-sentiment-analysis" in message


REVIEWS: list[dict[str, Any]] = [
    {"user_id": "u1", "rating": str(2 + 2 * (n % 5)), "review_summary": f"sum {n}", "review_text": f'tex"t, {n}'}
    for n in range(10)
]
REVIEWS += [
    {"user_id": "u2", "rating": "10", "review_summary": "", "review_text": "only\ntext"},
    {"user_id": "u2", "rating": None, "review_summary": "no rating", "review_text": "dropped"},
    {"user_id": "u2", "rating": "8", "review_summary": "", "review_text": " "},
]


@pytest.mark.parametrize("kind", ["csv", "json", "json.gz"])
def test_rent_the_runway_in_all_forms(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "rent_the_runway"
    folder.mkdir()
    assert "holds no .json, .json.gz or .csv file" in error(
        load, "rent_the_runway", str(tmp_path), np.random.default_rng(0)
    )
    file = folder / f"renttherunway_final_data.{kind}"
    if kind == "csv":

        def cell(value: str | None) -> str:
            return "" if value is None else '"' + value.replace('"', '""') + '"'

        rows = [
            f"{row['user_id']},1,{row['rating'] + '.0' if row['rating'] else ''},fit,{cell(row['review_summary'])},"
            f'{cell(row["review_text"])},"May 1, 2017"'
            for row in REVIEWS
        ]
        header = "user_id,item_id,rating,fit,review_summary,review_text,review_date"
        file.write_text("\n".join([header, *rows]) + "\n")
    else:
        content = "".join(json.dumps(row) + "\n" for row in REVIEWS).encode()
        file.write_bytes(gzip.compress(content) if kind == "json.gz" else content)
    data = load("rent_the_runway", str(tmp_path), np.random.default_rng(0))
    assert data.test_texts == ['sum 4. tex"t, 4', 'sum 9. tex"t, 9']
    assert data.train_texts[-1] == "only\ntext"
    assert data.train_labels.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert data.owners == ["u1"] * 8 + ["u2"]
    if kind == "csv":
        file.write_text(file.read_text().replace(",10.0,", ",11.0,"))
        assert "label '11' is not one of 2, 4, 6, 8, 10" in error(
            load, "rent_the_runway", str(tmp_path), np.random.default_rng(0)
        )
    else:
        file.write_bytes(file.read_bytes()[:-20])
        message = error(load, "rent_the_runway", str(tmp_path), np.random.default_rng(0))
        assert "is not one JSON object per line, or cut short" in message
        assert "https://cseweb.ucsd.edu/~jmcauley/datasets.html#clothing_fit" in message


def test_every_nth_example_of_each_owner_is_held_out() -> None:
    assert np.flatnonzero(held_out("abababaaab", every=3)).tolist() == [4, 5, 8]
    assert not held_out(["a", "b"], every=2).any()


def test_small_owners_can_be_left_out_and_all_others_taken(tmp_path: Path, weights: Path) -> None:
    owners = ["ann"] * 5 + ["bob"] * 2 + ["cid"] * 3
    assert [len(p) for p in _natural(owners, 0, 1)] == [5, 2, 3]
    assert "no owner has as many; the most is 5" in error(_natural, owners, 0, 6)
    assert "clients = 3: the data has only 2 owners with 3 examples or more; set clients = 2" in error(
        _natural, owners, 3, 3
    )
    write_sent140(tmp_path, [1] * 30 + [2] * 40 + [3] * 6)
    table = settings(tmp_path, weights) | {
        "data": {"dataset": "sent140", "folder": str(tmp_path), "clients": 0, "partition": "natural"}
    }
    assert from_table(table).make_task().sizes == [27, 36, 6]
    table["data"]["min_examples"] = 10
    assert from_table(table).make_task().sizes == [27, 36]
    table["data"]["max_examples"] = 30
    assert from_table(table).make_task().sizes == [27, 30]
    del table["data"]["max_examples"]
    table["strategy"]["concurrency"] = 3
    assert "concurrency = 3: more than the 2 clients there are" in error(from_table(table).run, None)
    table["data"] |= {"fraction": 0.5, "min_examples": 1}
    assert sum(from_table(table).make_task().sizes) == 34


def _natural(owners: list[str], clients: int, min_examples: int) -> list[np.ndarray]:
    generator = np.random.default_rng()
    split = Split(
        labels=np.zeros(10), num_clients=clients, generator=generator, owners=owners, min_examples=min_examples
    )
    return partition("natural", split)


# Settings ------------------------------------------------------------------------------------------------------------


def test_data_and_model_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(**tables: Any) -> str:
        return error(from_table, tables)

    bert = {"name": "bert", "weights": "bert-tiny"}
    assert message(data={"dataset": "sst2"}) == "model.name = 'mlp': reads images, sst2 holds texts; use bert"
    assert "model.name = 'bert': reads texts, digits holds images" in message(model=bert)
    assert "model.weights = '': bert needs a folder with pretrained weights" in message(model={"name": "bert"})
    assert "model.max_length = 1: must be between" in message(model=bert | {"max_length": 1})
    assert "model.lora_rank = -1: must be between" in message(model=bert | {"lora_rank": -1})
    assert "data.clients = 0: must be at least 1; 0 means every owner" in message(data={"clients": 0})
    assert "data.min_examples = 0: must be at least 1" in message(data={"min_examples": 0})
    assert "data.max_examples = 4: must be at least min_examples = 5, or 0 for no limit" in message(
        data={"min_examples": 5, "max_examples": 4}
    )
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    assert "say where it is: data.folder" in error(
        data_task, DataSettings(dataset="sst2"), ModelSettings(**bert), fedfa.LocalTraining(), 0
    )


def test_missing_or_damaged_weights_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    write_sst2(tmp_path, monkeypatch)

    def message(name: str = "tiny-bert", **model: Any) -> str:
        def build() -> None:
            experiment(tmp_path, Path(name), **model).make_task().initial(0)

        return error(build)

    assert experiment(tmp_path, Path("tiny-bert")).make_task().name == "sst2/tiny-bert"  # a name in the data folder
    assert "model.weights = 'none': no such folder" in message("none")
    assert "https://huggingface.co/google-bert/bert-base-uncased" in message("none")
    assert "model.max_length = 41: more than the 40 tokens this model reads" in message(max_length=41)
    file = weights / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert "the weights cannot be loaded (SafetensorError" in message()
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "the weights cannot be loaded" in message()
    file.unlink()
    assert "holds no model.safetensors or" in message()
    torch.save({"something": torch.zeros(2)}, weights / "pytorch_model.bin")
    assert "the weights lack" in message()
    (weights / "pytorch_model.bin").unlink()
    file.write_bytes(whole)
    (weights / "vocab.txt").unlink()
    (weights / "tokenizer.json").unlink(missing_ok=True)
    assert "holds no tokenizer.json or vocab.txt" in message()
    (weights / "config.json").write_text("{")
    (weights / "vocab.txt").write_text("\n".join(WORDS))
    assert "config.json cannot be loaded" in message()


@pytest.mark.parametrize(("library", "rank"), [("transformers", 0), ("peft", 1)])
def test_a_missing_extra_is_named(
    library: str, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    write_sst2(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, library, None)
    message = error(lambda: experiment(tmp_path, weights, lora_rank=rank).make_task().initial(0))
    assert message == "model.name = 'bert' needs the nlp extra: pip install 'fedfa[nlp]'"


# Tokens --------------------------------------------------------------------------------------------------------------


def test_texts_are_padded_cut_and_cached(
    weights: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["the film was good .", "bad", "zebra"]
    good, bad = WORDS.index("good"), WORDS.index("bad")
    expected = [[2, 11, 12, 13, good, 16, 3], [2, bad, 3, 0, 0, 0, 0], [2, 1, 3, 0, 0, 0, 0]]
    assert tokens.token_ids(texts, weights, 16).tolist() == expected
    assert tokens.token_ids(texts, weights, 4).tolist() == [[2, 11, 12, 3], [2, bad, 3, 0], [2, 1, 3, 0]]
    assert len(list(cache.iterdir())) == 2
    encode, calls = tokens._encode, []
    monkeypatch.setattr(tokens, "_encode", lambda *arguments: calls.append(1) or encode(*arguments))
    assert tokens.token_ids(texts, weights, 16).tolist() == expected
    assert not calls
    assert tokens.token_ids([*texts[:2], "good"], weights, 16)[2].tolist() == [2, good, 3, 0, 0, 0, 0]
    (weights / "vocab.txt").write_text("\n".join(word.replace("zebra", "good") for word in [*WORDS, "zebra"]))
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 2  # other texts, another vocabulary
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:-5])
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 3
    tokens.token_ids(texts, weights, 16)
    assert len(calls) == 3  # and written anew
    assert not caplog.records


def test_an_unwritable_cache_is_no_obstacle(
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


# The model -----------------------------------------------------------------------------------------------------------


def test_leaving_padding_out_changes_nothing(weights: Path) -> None:
    model = make(ModelSettings(name="bert", weights=str(weights)), (12,), 3).eval()
    ids = torch.zeros(150, 12, dtype=torch.int32)
    lengths = torch.randint(2, 9, (150,), generator=torch.Generator().manual_seed(0))
    for row, length in zip(ids, lengths.tolist(), strict=True):
        row[:length] = torch.arange(2, 2 + length)
    ids[0, 3] = 0  # a padding id inside a text
    uncut = model._outputs(ids)
    assert uncut.shape == (150, 3)
    torch.testing.assert_close(model(ids), uncut)
    with torch.inference_mode():
        torch.testing.assert_close(model(ids), uncut)
    one = model(ids[:1, : lengths[0]])
    torch.testing.assert_close(one, uncut[:1])


def test_shapes_never_depend_on_the_texts_in_a_graph_or_on_another_device(weights: Path) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    model = make(ModelSettings(name="bert", weights=str(weights), lora_rank=1), (12,), 2).eval()
    short, long = torch.zeros(2, 3, 12, dtype=torch.int32).unbind()
    short[:, :2], long[:, :9] = 2, 3
    graph = make_fx(model)(short)
    torch.testing.assert_close(graph(long), model(long))
    stacked = torch.func.vmap(model)(torch.stack([short, long]))
    torch.testing.assert_close(stacked, torch.stack([model(short), model(long)]))
    assert model.to("meta")(short.to("meta")).shape == (3, 2)  # a device that has no values to look at


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "MPNet"])
def test_lora_trains_adapters_and_head_alone(kind: str, tmp_path: Path) -> None:
    folder = save_weights(tmp_path / "w", kind)
    one, other = (make(ModelSettings(name="bert", weights=str(folder), lora_rank=2), (12,), 4) for _ in range(2))
    trained = [name for name, p in one.named_parameters() if p.requires_grad]
    assert sum("lora_A" in name for name in trained) == 4  # query and value of two layers
    rest = {name.split(".")[1] for name in trained if "lora" not in name}
    assert rest <= {"classifier", "pre_classifier"}
    assert "classifier" in rest
    shared = dict(other.named_parameters())
    for name, parameter in one.named_parameters():
        assert (parameter.data_ptr() == shared[name].data_ptr()) == (not parameter.requires_grad), name
    one.to("meta")
    assert {p.device.type for p in other.parameters()} == {"cpu"}
    full = make(ModelSettings(name="bert", weights=str(folder)), (12,), 4)
    assert all(p.requires_grad for p in full.parameters())


def test_a_new_model_does_not_remember_the_training_of_another(tmp_path: Path) -> None:
    folder = str(save_weights(tmp_path / "w"))
    fresh = Layout.of(make(ModelSettings(name="bert", weights=folder), (12,), 2))
    one = make(ModelSettings(name="bert", weights=folder), (12,), 2)
    before = fresh.pack(one)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(1.0)
    again = fresh.pack(make(ModelSettings(name="bert", weights=folder), (12,), 2))
    same = (again == before).float().mean()
    assert same > 0.95  # all but the head, which is drawn
    save_weights(Path(folder), seed=1)
    assert (fresh.pack(make(ModelSettings(name="bert", weights=folder), (12,), 2)) == before).float().mean() < 0.5


@pytest.mark.parametrize("rank", [0, 2])
def test_training_separates_the_toy_texts(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    write_sst2(tmp_path, monkeypatch)
    save_weights(weights, initializer_range=0.1)  # so that a frozen body, too, tells words apart
    table = settings(tmp_path, weights, lora_rank=rank, lora_alpha=4.0) | {"stop": {"updates": 24}}
    table["local"]["lr"] = 0.03
    run = from_table(table).run(None)
    assert run.evaluations["accuracy"][0] < 0.7
    assert run.evaluations["loss"][-1] < 0.5 * run.evaluations["loss"][0]
    assert run.final_accuracy > 0.9


def test_only_what_is_trained_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    write_sst2(tmp_path, monkeypatch)
    lora = experiment(tmp_path, weights, lora_rank=1)
    task = lora.make_task()
    module = task.build(0)
    frozen = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}
    runs = [lora.run(tmp_path / str(number)) for number in range(2)]
    assert runs[0].model is not None
    assert runs[1].model is not None
    assert (runs[0].model == runs[1].model).all()  # same seed, same model
    assert (runs[0].model != task.initial(0).vector).any()
    after = dict(task.build(0).named_parameters())
    assert all(torch.equal(after[name], value) for name, value in frozen.items())
    adapters, head = 2 * 2 * (16 + 16), 16 * 2 + 2
    assert runs[0].updates["bytes_up"][0] == 4 * (adapters + head)
    assert task.initial(0).num_frozen == sum(value.numel() for value in frozen.values())
    assert runs[0].summary()["num_frozen"] == runs[0].manifest["num_frozen"] == task.initial(0).num_frozen
    page = write_report([runs[0]], tmp_path / "report").read_text()
    assert "% of the model travels: 648 bytes instead of " in page
    assert experiment(tmp_path, weights).make_task().initial(0).num_frozen == 0


def test_the_command_line_says_what_travels(tmp_path: Path, weights: Path) -> None:
    write_sent140(tmp_path, [1] * 20 + [2] * 20)
    words = "data.dataset=sent140 data.clients=2 strategy.concurrency=2 stop.updates=2 model.name=bert"
    words += " model.max_length=16 model.lora_rank=1"
    sets = [part for word in words.split() for part in ("--set", word)]
    done = subprocess.run(
        [sys.executable, "-m", "fedfa.cli", "run", "--data", str(tmp_path), *sets, "--set", f"model.weights={weights}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "% of the model travels: 648 bytes instead of " in done.stdout
    assert "LOAD REPORT" not in done.stdout + done.stderr


def test_a_lora_run_is_continued_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    write_sst2(tmp_path, monkeypatch)
    lora = experiment(tmp_path, weights, lora_rank=1)
    task, strategy = lora.make_task(), lora.make_strategy
    whole = fedfa.simulate(strategy(), task, stop=fedfa.Stop(updates=12), out=tmp_path / "whole")
    ticks, asked = iter(range(10**9)), iter(range(10**9))
    monkeypatch.setattr(
        "fedfa.simulation.engine.time.perf_counter", lambda: float(next(ticks))
    )  # every arrival is a chance
    with pytest.raises(KeyboardInterrupt):
        fedfa.simulate(
            strategy(), task, stop=fedfa.Stop(updates=12), out=tmp_path / "parts", interrupted=lambda: next(asked) == 5
        )
    assert (tmp_path / "parts" / "checkpoint.npz").exists()
    save_weights(weights, seed=1)  # the frozen weights are not in the vector, but a run must not go on with others
    with pytest.raises(fedfa.RecordError, match="was started with other settings"):
        fedfa.simulate(strategy(), task, stop=fedfa.Stop(updates=12), out=tmp_path / "parts", resume=True)
    save_weights(weights, seed=0)
    parts = fedfa.simulate(strategy(), task, stop=fedfa.Stop(updates=12), out=tmp_path / "parts", resume=True)
    assert whole.model is not None
    assert parts.model is not None
    assert (whole.model == parts.model).all()
    for name in ("updates.parquet", "evaluations.parquet"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_without_dropout_batching_gives_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sst2(tmp_path, monkeypatch)
    lora = experiment(tmp_path, save_weights(tmp_path / "w", dropout=0.0), lora_rank=1)
    runs = [
        fedfa.simulate(lora.make_strategy(), lora.make_task(), stop=fedfa.Stop(updates=6), engine={"executor": name})
        for name in ("inline", "batched")
    ]
    assert [run.manifest["executor"] for run in runs] == ["inline", "batched"]
    assert runs[0].model is not None
    np.testing.assert_allclose(runs[0].model, runs[1].model, atol=1e-3)


def test_nothing_is_said_while_loading(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sst2(tmp_path, monkeypatch)
    experiment(tmp_path, weights, lora_rank=1).make_task().initial(0)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


# The real data -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL, reason="FEDFA_DATA does not say where real data is")
@pytest.mark.parametrize(
    ("name", "classes", "majority"),
    [("sst2", 2, 0.6), ("sent140", 2, 0.6), ("twitter_entity", 4, 0.35), ("rent_the_runway", 5, 0.7)],
)
def test_the_real_texts(name: str, classes: int, majority: float) -> None:
    data: TextSet = load(name, REAL, np.random.default_rng(0))
    assert data.classes == classes
    assert len(data.train_texts) == len(data.train_labels) > 5000
    assert set(data.train_labels.tolist()) == set(data.test_labels.tolist()) == set(range(classes))
    assert np.bincount(data.train_labels).max() / len(data.train_labels) < majority
    assert all(data.train_texts)
    if data.owners is not None:
        assert len(data.owners) == len(data.train_texts)
        assert set(data.test_texts) != set(data.train_texts)
