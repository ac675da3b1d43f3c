"""Dynamic NTK: NTK-aware scaling by s = alpha l/L - (alpha - 1) in a sequence of l tokens, and
nothing while l <= L, the train_length.

emozilla 2023 (reddit.com/r/LocalLLaMA, "Dynamically Scaled RoPE"); Peng et al. 2023,
arXiv 2309.00071, section 3.3. l is the length of the whole sequence, whichever tokens a rank holds
and whatever was evaluated before, and all keys are turned at the speeds of that l. alpha = 1 gives
s = l/L; 0 changes nothing.
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.extensions.ntk import stretched
from pipeline.positions.rope import RotaryPosition, without_speeds


class DynamicNtkScaling(Extension, RotaryPosition):
    """The speeds of a trained rotation under a base that grows with the sequence."""

    about = ExtensionFacts(
        source="emozilla 2023; Peng et al. 2023, arXiv 2309.00071, section 3.3",
        formula="w_t s^(-2t/(d-2)), s = max(1, alpha l/L - (alpha - 1)) for l tokens",
        fits="rope and the encodings made of it",
        changes={"length_dependent": True},
        same_as_trained={"alpha": 0.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs a fastest and a slowest speed."""
        return without_speeds(position, pairs=2)

    def configure(self, *, alpha: float = 1.0) -> None:  # type: ignore[override]
        """`alpha`: how much faster than l/L the scale grows, at least 0."""
        if not 0.0 <= alpha <= 1e6:
            raise ConfigError(
                f"extension.alpha={alpha}: must be 0 to 1e6; 1 scales by the length of the "
                "sequence over train_length, 0 changes nothing"
            )
        self.alpha = alpha

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t s^(-2t/(d-2)) [turned/2] fp64, for the s of this length."""
        grown = max(0.0, length / self.shape.train_length - 1.0)
        return stretched(super().speeds(device, length), 1.0 + self.alpha * grown)
