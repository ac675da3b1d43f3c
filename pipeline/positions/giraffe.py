"""Giraffe: RoPE with another basis of speeds, from w_t = base^(-2t/d), t = 0 .. d/2 - 1:
w_t (1 - 2t/d)^k (power), or w_t where w_t >= b, rho where a < w_t < b, and 0 where w_t <= a
(truncated).

Pal, Karkhanis, Roberts, Dooley, Sundararajan, Naidu 2023, arXiv 2308.10882. a, b and rho are given
in whole turns over the train_length L, one of which is 2 pi / L radians per token, so that they
keep their meaning at another length; the defaults are the proportions of the authors' code, where
what does not turn once in training becomes slower or stops, and the k of their results. k = 0, or a
= b = 0, is RoPE.
"""

import math

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Shape
from pipeline.positions.rope import RotaryPosition

POWER, TRUNCATED = BASES = ("power", "truncated")
_EXPONENT, _CUTOFFS, _BETWEEN = 0.5, (0.125, 1.0), 0.0625


class GiraffePosition(RotaryPosition):
    """Rotary position embedding whose slow pairs are slower, or do not turn."""

    facts = Facts(
        source="Pal et al. 2023, arXiv 2308.10882",
        formula="rope with w_t (1 - 2t/d)^k, or with w_t truncated: rho below b, 0 below a",
        family="rotation",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        real_positions=True,
    )

    def __init__(
        self,
        shape: Shape,
        *,
        basis: str = POWER,
        exponent: float = _EXPONENT,
        cutoff_low: float = _CUTOFFS[0],
        cutoff_high: float = _CUTOFFS[1],
        between: float = _BETWEEN,
        base: float = 10000.0,
    ) -> None:
        super().__init__(shape, base=base)
        if basis not in BASES:
            raise ConfigError(f"position.basis={basis!r}: must be one of {', '.join(BASES)}")
        if not 0.0 <= exponent < math.inf:
            raise ConfigError(f"position.exponent={exponent}: must be at least 0, which is rope")
        if not 0.0 <= cutoff_low <= cutoff_high < math.inf:
            raise ConfigError(
                f"position.cutoff_low={cutoff_low}, cutoff_high={cutoff_high}: must be at least 0, "
                "and the low one not above the high one"
            )
        if not 0.0 <= between < math.inf:
            raise ConfigError(f"position.between={between}: must be at least 0")
        cutoffs = (cutoff_low, cutoff_high, between)
        if basis == TRUNCATED and exponent != _EXPONENT:
            raise ConfigError(f"position.exponent={exponent}: has no effect with basis=truncated")
        if basis == POWER and cutoffs != (*_CUTOFFS, _BETWEEN):
            raise ConfigError(
                "position.cutoff_low, cutoff_high, between: have no effect with basis=power; "
                "leave them out, or use basis=truncated"
            )
        self.basis, self.exponent = basis, exponent
        self.cutoffs = tuple(turns * math.tau / shape.train_length for turns in cutoffs)

    def speeds(self, device: torch.device, length: int) -> Tensor:
        """w_t of the basis [d/2] fp64."""
        speeds = super().speeds(device, length)
        if self.basis == POWER:
            share = torch.arange(len(speeds), device=device, dtype=torch.float64) / len(speeds)
            return speeds * (1.0 - share) ** self.exponent
        low, high, between = self.cutoffs
        slow = torch.full_like(speeds, between).where(speeds > low, 0.0)
        return speeds.where(speeds >= high, slow)
