"""SHAPE: id(t) = t + k, one k ~ uniform {0, ..., largest_shift} for each training sequence.

Kiyono, Kobayashi, Suzuki, Inui 2021, arXiv 2109.05644, section 3, with their largest shift of 500.
Tests have k = 0, as in the paper. Made for encodings that read absolute positions: the shift takes
the absolute value away and leaves the distances.
"""

import numpy as np

from pipeline.errors import ConfigError
from pipeline.positions.base import Shape
from pipeline.positions.position_ids import Ids, IdsFacts, PositionIds, Tokens


class ShiftedIds(PositionIds):
    """Consecutive ids from a random start."""

    facts = IdsFacts(
        source="Kiyono et al. 2021, arXiv 2109.05644",
        formula="id(t) = t + k, k ~ U{0..largest_shift} per sequence",
        tested="id(t) = t",
        consecutive=True,
    )

    def __init__(self, shape: Shape, *, largest_shift: int = 500) -> None:
        super().__init__(shape)
        if not 1 <= largest_shift <= 2**40:
            raise ConfigError(
                f"position_ids.largest_shift={largest_shift}: must be 1 to {2**40} (the paper: 500)"
            )
        self.largest_shift = largest_shift

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """k, k + 1, ..., [S]."""
        return np.arange(length) + draw.integers(self.largest_shift + 1)

    @property
    def largest(self) -> int:
        """The last token under the largest shift."""
        return self.shape.train_length - 1 + self.largest_shift
