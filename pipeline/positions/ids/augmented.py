"""CAPE: id(t) = (t + D + e_t) exp(l), D ~ U(-global_shift, global_shift) and
l ~ U(-ln largest_scale, ln largest_scale) for each training sequence, e_t ~ U(-local_shift,
local_shift) for each token.

Likhomanenko, Xu, Synnaeve, Collobert, Rogozhnikov 2021, arXiv 2106.03143, with the settings the
authors give for text. Tests have id(t) = t. Ids are real numbers. With local_shift up to 0.5 tokens
keep their order; more is refused, for causal attention then sees negative distances.
"""

import math

import numpy as np

from pipeline.errors import ConfigError
from pipeline.positions.base import Shape
from pipeline.positions.position_ids import Ids, IdsFacts, PositionIds, Tokens


class AugmentedIds(PositionIds):
    """Consecutive positions that are shifted, jittered and stretched at random."""

    facts = IdsFacts(
        source="Likhomanenko et al. 2021, arXiv 2106.03143",
        formula="id(t) = (t + D + e_t) exp(l), D and l per sequence, e_t per token, all uniform",
        tested="id(t) = t",
        real=True,
    )

    def __init__(
        self,
        shape: Shape,
        *,
        global_shift: float = 5.0,
        local_shift: float = 0.5,
        largest_scale: float = 1.03,
    ) -> None:
        super().__init__(shape)
        for key, value, fits, allowed in (
            ("global_shift", global_shift, 0.0 <= global_shift <= 2.0**40, f"0 to {2**40}"),
            ("local_shift", local_shift, 0.0 <= local_shift <= 0.5, "0 to 0.5, in tokens"),
            ("largest_scale", largest_scale, 1.0 <= largest_scale <= 1000.0, "1 to 1000"),
        ):
            if not fits:
                raise ConfigError(f"position_ids.{key}={value}: must be {allowed}")
        if global_shift == local_shift == 0.0 and largest_scale == 1.0:
            raise ConfigError(
                "position_ids: global_shift, local_shift and largest_scale change nothing; use "
                "position_ids=consecutive"
            )
        self.global_shift, self.local_shift = global_shift, local_shift
        self.largest_scale = largest_scale

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """Ascending real positions, fp64 [S]."""
        shift = draw.uniform(-self.global_shift, self.global_shift)
        spread = math.log(self.largest_scale)
        scale = math.exp(draw.uniform(-spread, spread))
        jitter = draw.uniform(-self.local_shift, self.local_shift, length)
        return (np.arange(length) + shift + jitter) * scale

    @property
    def largest(self) -> int:
        """The last token under every largest draw."""
        last = self.shape.train_length - 1 + self.global_shift + self.local_shift
        return math.ceil(last * self.largest_scale)
