"""YaRN: (1 - g_t) w_t / s + g_t w_t, and what turns of q and k multiplied each by 0.1 ln s + 1, so
products by its square; s = scale = L'/L. In the code, g_t falls from 1 to 0 linearly in t between
the pairs floor(c(beta)) and ceil(c(alpha)), c(r) = d ln(L / (2 pi r)) / (2 ln base); in the paper,
g_t is NTK-by-parts' ramp in the turns of pair t.

Peng, Quesnelle, Fan, Shippole 2023, arXiv 2309.00071, sections 3.2 and 3.4. The two ramps meet only
at their ends: between them speeds differ, by up to 2.3 times at s = 8 and by more beyond. What
others call yarn is mostly the code. Its pairs are those of a spectrum base^(-2t/d): of giraffe,
which has another, the paper's form alone counts the turns.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.extensions.ntk_by_parts import by_parts, check_turns
from pipeline.positions.rope import RotaryPosition, check_scale, without_speeds

CODE, PAPER = FORMS = ("code", "paper")


def correction_range(
    width: int, base: float, length: int, alpha: float, beta: float
) -> tuple[int, int]:
    """Of a rotation `width` wide: the last pair that turns at least `beta` times in `length`
    tokens, and the first that turns at most `alpha` times; within the width, and in this order even
    where all pairs turn as often, or none does."""

    def pair(turns: float) -> float:
        return width * math.log(length / (turns * math.tau)) / (2.0 * math.log(base))

    low = max(math.floor(pair(beta)), 0)
    return low, max(low, min(math.ceil(pair(alpha)), width - 1))


class Yarn(Extension, RotaryPosition):
    """The slow speeds of a trained rotation divided, and all its scores sharpened."""

    about = ExtensionFacts(
        source="Peng et al. 2023, arXiv 2309.00071",
        formula="(1-g)w_t/s + g w_t, scores (0.1 ln s + 1)^2; g a ramp over pairs (code) or "
        "over turns (paper)",
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

    def configure(  # type: ignore[override]
        self, *, form: str = CODE, scale: float = 4.0, alpha: float = 1.0, beta: float = 32.0
    ) -> None:
        """`scale`: s, at least 1; `alpha`, `beta`: turns over train_length."""
        if form not in FORMS:
            raise ConfigError(f"extension.form={form!r}: must be one of {', '.join(FORMS)}")
        check_scale("scale", scale)
        check_turns("alpha", alpha, "beta", beta)
        self.form, self.s, self.ramp = form, scale, (alpha, beta)

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """The speeds of the ramp [turned/2] fp64."""
        speeds, trained = super().speeds(device, length), self.shape.train_length
        if self.form == PAPER:
            return by_parts(speeds, self.s, trained, *self.ramp)
        low, high = correction_range(self.turned, self.base, trained, *self.ramp)
        pairs = torch.arange(len(speeds), device=device, dtype=torch.float64)
        # the authors' step where the two meet
        divided = ((pairs - low) / (high - low or 1e-3)).clamp(0.0, 1.0)
        return torch.lerp(speeds, speeds / self.s, divided)

    def magnitude(self, length: int) -> float:
        """0.1 ln s + 1, besides what the trained encoding multiplies by."""
        return super().magnitude(length) * (0.1 * math.log(self.s) + 1.0)
