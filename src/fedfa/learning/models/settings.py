"""Which model, and how large."""

from dataclasses import dataclass

from fedfa.errors import check
from fedfa.learning.models.resnet import Norm


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, and how large."""

    name: str = "mlp"
    hidden: int = 64
    """Units of the hidden layer (mlp, cnn)."""
    norm: Norm = "batch"
    """BatchNorm or GroupNorm (resnet18)."""
    width: int = 64
    """Channels of the first stage (resnet18)."""
    weights: str = ""
    """Folder with the pretrained model and its vocabulary: a path, or a name inside the data folder (bert)."""
    max_length: int = 64
    """Tokens; longer texts are cut (bert)."""
    lora_rank: int = 0
    """Rank of the LoRA adapters; only they and the head are trained. 0: everything is trained (bert)."""
    lora_alpha: float = 1.0
    """The adapters are scaled by lora_alpha / lora_rank (bert)."""

    def __post_init__(self) -> None:
        check(1 <= self.hidden <= 10**6, "hidden", self.hidden, "must be between 1 and 1,000,000")
        good = 8 <= self.width <= 1024 and self.width % 8 == 0
        check(good, "width", self.width, "must be a multiple of 8, at most 1024")
        need = "bert needs a folder with pretrained weights, for example weights = 'bert-tiny'"
        check(self.name != "bert" or self.weights != "", "weights", self.weights, need)
        check(2 <= self.max_length <= 10**5, "max_length", self.max_length, "must be between 2 and 100,000")
        check(0 <= self.lora_rank <= 1024, "lora_rank", self.lora_rank, "must be between 0 and 1024")
        check(0 < self.lora_alpha < float("inf"), "lora_alpha", self.lora_alpha, "must be above 0, and finite")
