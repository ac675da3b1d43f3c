"""Position interpolation: w_t / s, which is RoPE at the position i / s; s = scale = L'/L, the
length to reach over the train_length.

Chen, Wong, Chen, Tian 2023, arXiv 2306.15595, equation 4. Found with some training at the new
length; without it, scales of 4 and more do badly.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds


class PositionInterpolation(Extension, RotaryPosition):
    """All speeds of a trained rotation divided by one number."""

    about = ExtensionFacts(
        source="Chen et al. 2023, arXiv 2306.15595",
        formula="w_t / s",
        fits="rope and the encodings made of it",
        changes={},
        same_as_trained={"scale": 1.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs speeds."""
        return without_speeds(position)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The scale itself."""
        return {"scale": times}

    def configure(self, *, scale: float = 4.0) -> None:  # type: ignore[override]
        """`scale`: s, at least 1."""
        check_scale("scale", scale)
        self.s = scale

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t / s [turned/2] fp64."""
        return super().speeds(device, length) / self.s
