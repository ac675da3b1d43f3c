"""Randomized positions: the ids of a sequence of n tokens are n distinct numbers out of {0, ...,
positions - 1}, drawn uniformly for each sequence and sorted.

Ruoss, Deletang, Genewein, Grau-Moya, Csordas, Bennani, Legg, Veness 2023, arXiv 2305.16843, section
3, with their 2048 positions. Tests are numbered by such a draw as well, as in the authors' code:
here one for each length, from the seed of the run, so that a test can be repeated. A sequence of
more than `positions` tokens cannot be numbered.
"""

import numpy as np

from pipeline.errors import ConfigError
from pipeline.positions.base import Shape
from pipeline.positions.position_ids import Ids, IdsFacts, PositionIds, Tokens, generator


class RandomizedIds(PositionIds):
    """Ascending ids with random gaps."""

    facts = IdsFacts(
        source="Ruoss et al. 2023, arXiv 2305.16843",
        formula="ids = n distinct numbers out of {0..positions-1}, sorted, per sequence",
        tested="one draw for each length, from the seed of the run",
    )

    tests_consecutive = False

    def __init__(self, shape: Shape, *, positions: int = 2048) -> None:
        super().__init__(shape)
        if not shape.train_length < positions <= 2**26:
            raise ConfigError(
                f"position_ids.positions={positions}: must be above train_length="
                f"{shape.train_length} and at most {2**26}; use the longest length to be tested"
            )
        self.positions = positions

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """Ascending, distinct, below `positions`, [S]."""
        return np.sort(draw.choice(self.positions, length, replace=False))

    def tested(self, length: int, tokens: Tokens | None, seed: int) -> Ids:
        """The draw of this length and seed."""
        return self.drawn(length, None, generator(seed, length))

    @property
    def largest(self) -> int:
        """The last position."""
        return self.positions - 1

    @property
    def max_length(self) -> int:
        """Every token needs a position of its own."""
        return self.positions
