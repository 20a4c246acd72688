"""A strategy of your own: FedFa-Agree with another step, which adapts to how much the differences disagree.

The rule is that of Jhunjhunwala et al., "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, taken
for a sliding window instead of a round:

    eta_g = max(1, mean_k |D_k|^2 / (2 |mean_k D_k|^2))

Differences that point the same way give 1, which is FedFa-Param; K that are at right angles to each other give K / 2.

    fedfa compare --strategies fedfa-param,examples/adaptive_step.py:FedFaExP --seeds 0,1,2,3,4 --target 0.93 \\
                  --set data.alpha=5.0 --set stop.seconds=1200
"""

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from fedfa.strategies.fedfa_agree import FedFaAgree
from fedfa.strategies.vectors import distance


@dataclass(kw_only=True, eq=False)
class FedFaExP(FedFaAgree):
    """FedFa-Agree with FedExP's step."""

    name: ClassVar[str] = "fedfa-exp"

    def step(self) -> float:
        parameters = slice(0, self.num_trainable)
        window = zip(self.results.entries, self.bases.entries, strict=True)
        each = fmean(distance(model.vector[parameters], base.vector[parameters]) ** 2 for model, base in window)
        agreed = distance(self.results.mean()[parameters], self.bases.mean()[parameters]) ** 2
        return max(1.0, each / (2 * agreed)) if agreed > 0 else 1.0
