"""BERT and its relatives, on tiny models with random weights."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa.executors.capture import CannotCapture, capture
from fedfa.experiments.config import from_table
from fedfa.learning.flat import Layout
from fedfa.learning.models.registry import make
from fedfa.learning.models.settings import ModelSettings
from fedfa.report.page import write_report
from tests.helpers.texts import WORDS, bert_experiment, bert_settings, error_of, save_weights, write_sent140, write_sst2

pytestmark = pytest.mark.usefixtures("cache_folder")


def test_missing_or_damaged_weights_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    write_sst2(tmp_path, monkeypatch)

    def message(name: str = "tiny-bert", **model: Any) -> str:
        def build() -> None:
            bert_experiment(tmp_path, Path(name), **model).make_task().initial(0)

        return error_of(build)

    assert (
        bert_experiment(tmp_path, Path("tiny-bert")).make_task().name == "sst2/tiny-bert"
    )  # a name in the data folder
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
    message = error_of(lambda: bert_experiment(tmp_path, weights, lora_rank=rank).make_task().initial(0))
    assert message == "model.name = 'bert' needs the nlp extra: pip install 'fedfa[nlp]'"


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
    model = make(ModelSettings(name="bert", weights=str(weights), lora_rank=1), (12,), 2).eval()
    short, long = torch.zeros(2, 3, 12, dtype=torch.int32).unbind()
    short[:, :2], long[:, :9] = 2, 3
    with pytest.raises(CannotCapture, match="_local_scalar_dense"):
        capture(model, short)
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
    table = bert_settings(tmp_path, weights, lora_rank=rank, lora_alpha=4.0) | {"stop": {"updates": 24}}
    table["local"]["lr"] = 0.03
    run = from_table(table).run(None)
    assert run.evaluations["accuracy"][0] < 0.7
    assert run.evaluations["loss"][-1] < 0.5 * run.evaluations["loss"][0]
    assert run.final_accuracy > 0.9


def test_only_trained_parameters_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    write_sst2(tmp_path, monkeypatch)
    lora = bert_experiment(tmp_path, weights, lora_rank=1)
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
    assert bert_experiment(tmp_path, weights).make_task().initial(0).num_frozen == 0


def test_the_command_line_reports_what_is_sent(tmp_path: Path, weights: Path) -> None:
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
    lora = bert_experiment(tmp_path, weights, lora_rank=1)
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
    lora = bert_experiment(tmp_path, save_weights(tmp_path / "w", dropout=0.0), lora_rank=1)
    runs = [
        fedfa.simulate(lora.make_strategy(), lora.make_task(), stop=fedfa.Stop(updates=6), engine={"executor": name})
        for name in ("inline", "batched")
    ]
    assert [run.manifest["executor"] for run in runs] == ["inline", "batched"]
    assert runs[0].model is not None
    np.testing.assert_allclose(runs[0].model, runs[1].model, atol=1e-3)


def test_nothing_is_printed_while_loading(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sst2(tmp_path, monkeypatch)
    bert_experiment(tmp_path, weights, lora_rank=1).make_task().initial(0)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
