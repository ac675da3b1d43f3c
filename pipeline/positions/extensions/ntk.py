"""NTK-aware scaling: RoPE with the base b s^(d/(d-2)), that is w_t s^(-2t/(d-2)), t = 0 .. d/2 - 1:
the fastest pair keeps its speed and the slowest is interpolated by s = scale = L'/L.

bloc97 2023 (reddit.com/r/LocalLLaMA, "NTK-Aware Scaled RoPE"); Peng et al. 2023, arXiv 2309.00071,
section 3.1. Of encodings whose speeds are no powers of a base, every speed is divided likewise.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds


def stretched(speeds: Tensor, scale: float) -> Tensor:
    """Speeds [n], the first kept, the last divided by `scale`, geometrically between them."""
    steps = torch.arange(len(speeds), device=speeds.device, dtype=torch.float64)
    return speeds * torch.pow(scale, -steps / (len(speeds) - 1))


class NtkAwareScaling(Extension, RotaryPosition):
    """The speeds of a trained rotation under a larger base."""

    about = ExtensionFacts(
        source="bloc97 2023; Peng et al. 2023, arXiv 2309.00071, section 3.1",
        formula="w_t s^(-2t/(d-2)), which is base s^(d/(d-2))",
        fits="rope and the encodings made of it",
        changes={},
        same_as_trained={"scale": 1.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs a fastest and a slowest speed."""
        return without_speeds(position, pairs=2)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The scale itself."""
        return {"scale": times}

    def configure(self, *, scale: float = 4.0) -> None:  # type: ignore[override]
        """`scale`: s, at least 1."""
        check_scale("scale", scale)
        self.s = scale

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t s^(-2t/(d-2)) [turned/2] fp64."""
        return stretched(super().speeds(device, length), self.s)
