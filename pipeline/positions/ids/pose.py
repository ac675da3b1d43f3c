"""PoSE: a training sequence of n tokens is cut in two at a random place; id(t) = t before the cut,
and t + u after it, u ~ uniform {0, ..., target_length - n} for each sequence.

Zhu, Yang, Wang, Song, Wu, Wei, Li 2024, arXiv 2309.10400, section 3, with two chunks; as in the
authors' code the first chunk has 1 to floor((n + 1)/2) tokens. Their second chunk may also be taken
from elsewhere in the document; here the text goes on, which is their setting v_i = 0. Tests have
id(t) = t.
"""

import numpy as np

from pipeline.errors import ConfigError
from pipeline.positions.base import Shape
from pipeline.positions.position_ids import Ids, IdsFacts, PositionIds, Tokens


class SkippedIds(PositionIds):
    """Positional skip-wise training: one random gap."""

    facts = IdsFacts(
        source="Zhu et al. 2024, arXiv 2309.10400",
        formula="id(t) = t before a random cut, t + u after it, u ~ U{0..target_length-n}",
        tested="id(t) = t",
    )

    def __init__(self, shape: Shape, *, target_length: int = 2048) -> None:
        super().__init__(shape)
        if not shape.train_length < target_length <= 2**26:
            raise ConfigError(
                f"position_ids.target_length={target_length}: must be above train_length="
                f"{shape.train_length} and at most {2**26}; use the longest length to be tested"
            )
        self.target_length = target_length

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """Two runs of consecutive ids, [S]."""
        cut = int(draw.integers(1, max(2, (length + 1) // 2 + 1)))
        skip = int(draw.integers(self.target_length - length + 1))
        ids = np.arange(length)
        ids[cut:] += skip
        return ids

    @property
    def largest(self) -> int:
        """The last position of the target."""
        return self.target_length - 1
