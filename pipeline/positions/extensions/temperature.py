"""Temperature: beyond the training length L, in a sequence of n tokens, all products of queries and
keys are multiplied by 1 + c ln(n/L).

Gelberg et al. 2025 (DroPE), arXiv 2512.12167, for models that have dropped their positions, with
c = 0.412 for one and 0.103 for another. Biases stay as they are.
"""

import math
from dataclasses import replace

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.scores import Scores


class TemperatureExtension(Extension):
    """Scores that grow with the length of the whole sequence."""

    about = ExtensionFacts(
        source="Gelberg et al. 2025, arXiv 2512.12167",
        formula="q_i.k_j -> q_i.k_j (1 + coefficient ln(max(n, train_length)/train_length)), "
        "n = tokens of the sequence",
        fits="all encodings",
        changes={"length_dependent": True},
        same_as_trained={"coefficient": 0.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """Every encoding has products of queries and keys."""
        return None

    def configure(self, *, coefficient: float = 0.412) -> None:  # type: ignore[override]
        """`coefficient` is c."""
        if not 0.0 <= coefficient <= 1000.0:
            raise ConfigError(
                f"extension.coefficient={coefficient}: must be 0 to 1000 (the authors: "
                "0.103 to 0.412)"
            )
        self.coefficient = coefficient

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """Those of the trained encoding at another scale."""
        found = super().adjust(scores, ids, site)
        growth = math.log(max(1.0, site.length / self.shape.train_length))
        if growth == 0.0:
            return found
        # a fold is made for the trained scale
        return replace(found, scale=found.scale * (1.0 + self.coefficient * growth), folded=None)
