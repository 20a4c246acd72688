"""Text classification with BERT and its relatives, from a folder in the form of Hugging Face's transformers.

Nothing is downloaded: the folder is the user's own copy. With LoRA (Hu et al., arXiv:2106.09685) the body is frozen;
only small adapters of the query and value matrices, and the classification head, are trained and sent.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfa.errors import ConfigError, check, in_a_line, require
from fedfa.learning.private_torch import is_transformed

REMEDY = (
    "get config.json, model.safetensors and vocab.txt from https://huggingface.co/google-bert/bert-base-uncased "
    "or https://huggingface.co/prajjwal1/bert-tiny"
)
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
QUERY_AND_VALUE = {"query", "value", "q", "v", "q_lin", "v_lin", "q_proj", "v_proj", "query_proj", "value_proj"}
"""The names of the matrices in BERT, MPNet, DistilBERT and others."""

LIKE_LENGTH = 64
"""Texts evaluated together."""


class Bert(nn.Module):
    """From token ids [batch, length], padded at the end, to one output per class."""

    def __init__(self, folder: str, classes: int, lora_rank: int = 0, lora_alpha: float = 1.0) -> None:
        super().__init__()
        self.model, self.pad = _new(Path(folder), classes, lora_rank, lora_alpha)

    def forward(self, ids: Tensor) -> Tensor:
        if not _may_look_at(ids):
            return self._outputs(ids)
        # Most texts are short: leave out columns that are all padding, and evaluate texts of similar length together.
        lengths = (ids != self.pad).int().mul(torch.arange(1, ids.shape[1] + 1)).amax(1)
        if torch.is_grad_enabled() or len(ids) <= LIKE_LENGTH:
            return self._outputs(ids[:, : int(lengths.max())])
        order = lengths.argsort()
        parts = [self._outputs(ids[rows, : int(lengths[rows].max())]) for rows in order.split(LIKE_LENGTH)]
        return torch.cat(parts)[order.argsort()]

    def _outputs(self, ids: Tensor) -> Tensor:
        # In its final form, because transformers would read the values of a plain mask, which makes a GPU wait.
        mask = torch.zeros(ids.shape, device=ids.device).masked_fill(ids == self.pad, torch.finfo(torch.float32).min)
        return self.model(input_ids=ids, attention_mask=mask[:, None, None, :]).logits


def _may_look_at(ids: Tensor) -> bool:
    """Whether shapes may depend on values: only in plain execution on the CPU, never in a graph that is reused."""
    return (
        ids.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        and not is_transformed(ids)
    )


def find_weights(weights: str, data: Path) -> Path:
    """The folder with the weights: a path, or a name inside the data folder."""
    places = [Path(weights).expanduser(), data / weights]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise ConfigError(f"model.weights = {weights!r}: no such folder, nor one in {data}; {REMEDY}")
    for names in (("config.json",), WEIGHT_FILES, VOCABULARIES):
        there = any((folder / name).is_file() for name in names)
        check(there, "model.weights", weights, f"{folder} holds no {' or '.join(names)}; {REMEDY}")
    return folder.absolute()


def from_folder(kind: str, folder: Path, **settings: Any) -> Any:
    """The result of ``transformers.AutoX.from_pretrained`` for these files, without the network."""
    transformers = needed("transformers")
    with _quietly():
        try:
            return getattr(transformers, kind).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **settings
            )
        except Exception as error:  # whatever a damaged file makes the library raise
            what = {"AutoConfig": "config.json", "AutoTokenizer": "the tokenizer"}.get(kind, "the weights")
            raise ConfigError(f"{folder}: {what} cannot be loaded ({in_a_line(error)}); {REMEDY}") from error


def padding(config: Any) -> int:
    """The id that pads short texts."""
    return config.pad_token_id or 0


def needed(name: str) -> Any:
    """A library of the nlp extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return import_module(name)
        except ImportError as error:
            raise ConfigError("model.name = 'bert' needs the nlp extra: pip install 'fedfa[nlp]'") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the library's progress bars and messages; its settings are restored afterwards."""
    logging = needed("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _new(folder: Path, classes: int, lora_rank: int, lora_alpha: float) -> tuple[nn.Module, int]:
    """A new model and its padding id; weights frozen by LoRA share their storage with other models of this folder."""
    stamp = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir()))
    loaded, new = _pretrained(folder, classes, stamp)
    body = f"{loaded.base_model_prefix}."
    head = {name for name, _ in loaded.named_parameters() if name in new or not name.startswith(body)}
    frozen = {
        id(parameter): nn.Parameter(parameter.data, requires_grad=False)
        for name, parameter in loaded.named_parameters()
        if lora_rank and name not in head
    }
    model = copy.deepcopy(loaded, frozen)
    for name in sorted(new):
        parameter = model.get_parameter(name)
        if parameter.dim() > 1:  # biases are 0 already
            nn.init.normal_(parameter, std=model.config.initializer_range)
    if lora_rank:
        _add_adapters(model, lora_rank, lora_alpha)
        for name in head:
            model.get_parameter(name).requires_grad_(True)
    return model, padding(model.config)


@lru_cache(maxsize=1)
def _pretrained(folder: Path, classes: int, stamp: object) -> tuple[Any, frozenset[str]]:
    """The loaded model, and which of its parameters were not in the file; kept until a file changes (``stamp``)."""
    with torch.random.fork_rng(devices=[]):  # random draws must not depend on whether it is kept or read
        model, report = from_folder(
            "AutoModelForSequenceClassification", folder, num_labels=classes, dtype=torch.float32,
            attn_implementation="eager",  # as fast on short texts, can be batched over clients, repeats bit for bit
            output_loading_info=True,
        )  # fmt: skip
    new = frozenset(report["missing_keys"])
    lost = sorted(name for name in new if name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name)
    some = ", ".join(lost[:2])
    require(
        not lost, f"{folder}: the weights lack {len(lost)} tensors that config.json asks for ({some} ...); {REMEDY}"
    )
    return model, new


def _add_adapters(model: nn.Module, rank: int, alpha: float) -> None:
    """Freeze the model and add trainable adapters to its query and value matrices."""
    peft = needed("peft")
    targets = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in QUERY_AND_VALUE
    ]
    kind = type(model).__name__
    check(len(targets) > 0, "model.lora_rank", rank, f"{kind} has no query and value matrices; set lora_rank = 0")
    with _quietly():
        peft.inject_adapter_in_model(
            peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets), model
        )
