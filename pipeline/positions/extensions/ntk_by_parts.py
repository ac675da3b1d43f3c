"""NTK-by-parts: (1 - g_t) w_t / s + g_t w_t, where g_t = clip((r_t - alpha)/(beta - alpha), 0, 1)
and r_t = L w_t / 2 pi counts the turns of pair t over the train_length L: what turns less than
alpha times is interpolated by s = scale = L'/L, what turns more than beta times is kept.

Peng, Quesnelle, Fan, Shippole 2023, arXiv 2309.00071, section 3.2, as printed: the ramp is linear
in turns. `yarn` adds a temperature.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds


def by_parts(speeds: Tensor, scale: float, length: int, low: float, high: float) -> Tensor:
    """Speeds, interpolated by `scale` where they turn at most `low` times in `length` tokens, kept
    from `high` times on, and between them in proportion to the turns."""
    turns = length * speeds / math.tau
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return torch.lerp(speeds / scale, speeds, kept)


def check_turns(low_key: str, low: float, high_key: str, high: float) -> None:
    """Refuse two counts of turns that no ramp lies between.

    Raises:
        ConfigError: not 0 < low < high.
    """
    if not 0.0 < low < high < math.inf:
        raise ConfigError(
            f"extension.{low_key}={low}, {high_key}={high}: must be above 0, and {low_key} below "
            f"{high_key}; they count turns over train_length"
        )


class NtkByParts(Extension, RotaryPosition):
    """The slow speeds of a trained rotation divided, the fast ones kept."""

    about = ExtensionFacts(
        source="Peng et al. 2023, arXiv 2309.00071, section 3.2",
        formula="(1-g)w_t/s + g w_t, g = clip((L w_t/2pi - alpha)/(beta - alpha), 0, 1)",
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

    def configure(self, *, scale: float = 4.0, alpha: float = 1.0, beta: float = 32.0) -> None:  # type: ignore[override]
        """`scale`: s, at least 1; `alpha`, `beta`: turns over train_length."""
        check_scale("scale", scale)
        check_turns("alpha", alpha, "beta", beta)
        self.s, self.ramp = scale, (alpha, beta)

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """The speeds of the ramp [turned/2] fp64."""
        speeds = super().speeds(device, length)
        return by_parts(speeds, self.s, self.shape.train_length, *self.ramp)
