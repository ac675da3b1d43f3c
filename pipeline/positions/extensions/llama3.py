"""The rescaling of Llama 3.1: (1 - g_t) w_t / factor + g_t w_t, where g_t =
clip((L w_t / 2 pi - low)/(high - low), 0, 1): a wavelength above L / low is stretched by `factor`,
one below L / high is kept; L = train_length.

Meta 2024 (github.com/meta-llama/llama-models, apply_scaling), with factor 8, low 1, high 4 and
L = 8192. It is NTK-by-parts with a shorter ramp, and without YaRN's temperature.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.extensions.ntk_by_parts import by_parts, check_turns
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds


class Llama3Scaling(Extension, RotaryPosition):
    """The slow speeds of a trained rotation divided, the fast ones kept, with a short ramp."""

    about = ExtensionFacts(
        source="Meta 2024, Llama 3.1",
        formula="(1-g)w_t/factor + g w_t, g = clip((L w_t/2pi - low)/(high - low), 0, 1)",
        fits="rope and the encodings made of it",
        changes={},
        same_as_trained={"factor": 1.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs speeds."""
        return without_speeds(position)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The factor."""
        return {"factor": times}

    def configure(self, *, factor: float = 8.0, low: float = 1.0, high: float = 4.0) -> None:  # type: ignore[override]
        """`factor` at least 1; `low`, `high`: turns over train_length."""
        check_scale("factor", factor)
        check_turns("low", low, "high", high)
        self.s, self.ramp = factor, (low, high)

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """The speeds of the ramp [turned/2] fp64."""
        speeds = super().speeds(device, length)
        return by_parts(speeds, self.s, self.shape.train_length, *self.ramp)
