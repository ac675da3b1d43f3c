"""LongRoPE: pair t of a token at i turns by i w_t / f_t, or by i w_t while i < n; q and k are
multiplied each by sqrt(1 + ln s / ln L) as in Microsoft's code, s = scale = L'/L, with a factor f_t
for each of the d/2 pairs and the first n tokens, `unscaled_tokens`, as they were.

Ding, Zhang, Zhang, Xu, Shang, Xu, Yang, Yang 2024, arXiv 2402.13753. The paper finds f
and n (0 to 256) by an evolutionary search over the trained model; found elsewhere, they are given
here as they are. f_t = s and n = 0 are position interpolation. Between the first n tokens and the
rest an angle is no longer a distance, so shifts are seen. One list serves all lengths: the shorter
one, which the paper finds for texts up to L, is a second extension to be tested by itself.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds

_ALIKE = [4.0]  # one factor for all pairs


class LongRope(Extension, RotaryPosition):
    """Every speed of a trained rotation divided by a number of its own."""

    about = ExtensionFacts(
        source="Ding et al. 2024, arXiv 2402.13753",
        formula="angle i w_t/f_t, or i w_t for i < n; scores (1 + ln s/ln L)",
        fits="rope and the encodings made of it",
        changes={"shift_invariant": False},
        same_as_trained={"scale": 1.0, "factors": [1.0]},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs speeds, and ln L for the temperature."""
        if position.shape.train_length < 2:
            return "its temperature divides by ln(train_length), and train_length is 1"
        return without_speeds(position)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The scale, and all factors alike."""
        return {"scale": times, "factors": [times]}

    def configure(  # type: ignore[override]
        self, *, scale: float = 4.0, factors: list[float] = _ALIKE, unscaled_tokens: int = 4
    ) -> None:
        """`scale`: s, at least 1; `factors`: f, fastest pair first, or s alone for all;
        `unscaled_tokens`: n."""
        check_scale("scale", scale)
        pairs = self.turned // 2
        if len(factors) != pairs and factors != [scale]:
            raise ConfigError(
                f"extension.factors: {len(factors)} for {pairs} pairs; give one for each pair, "
                f"fastest first, or [{scale}], the scale alone, for all of them"
            )
        for factor in factors:
            if not 0.0 < factor < math.inf:
                raise ConfigError(f"extension.factors: {factor} must be a number above 0")
        if unscaled_tokens < 0:
            raise ConfigError(f"extension.unscaled_tokens={unscaled_tokens}: must be at least 0")
        self.s, self.unscaled_tokens, self.factors = scale, unscaled_tokens, tuple(factors)

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t / f_t [turned/2] fp64."""
        factors = torch.tensor(self.factors, device=device, dtype=torch.float64)
        return super().speeds(device, length) / factors

    def angles(self, ids: Tensor, site: Site) -> Tensor:
        """ids [B,S] or [1,S] -> i w_t / f_t [B,1,S,turned/2] fp64, i w_t of the first tokens."""
        positions = ids[:, None, :, None].double()
        trained = super().speeds(ids.device, site.length)
        scaled = self.speeds(ids.device, site.length)
        return positions * torch.where(positions < self.unscaled_tokens, trained, scaled)

    def magnitude(self, length: int) -> float:
        """sqrt(1 + ln s / ln L), besides what the trained encoding multiplies by."""
        grown = math.log(self.s) / math.log(self.shape.train_length)
        return super().magnitude(length) * math.sqrt(1.0 + grown)
