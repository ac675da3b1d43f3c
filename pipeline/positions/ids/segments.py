"""BiPE: the input of a token gets a learned vector P[m], m its place in its segment; the encoding
sees id(t) = n, the number of its segment. A segment ends with a token that ends in a separator.

Zhenyu He, Feng, Luo, Yang, Di He, Xu, Zhang, Yang, Wang 2024, arXiv 2401.16421: full stops and line
breaks end a segment, and belong to it. P [places, D] ~ N(0, 0.02); places beyond the last share it,
as in the authors' code. The same in training and test. n and m count from the start of the
sequence: a token's number does not depend on those after it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Shape
from pipeline.positions.position_ids import Ids, IdsFacts, PositionIds, Tokens


class SegmentIds(PositionIds):
    """Bilevel positions: segments for the encoding, places within them for the input."""

    facts = IdsFacts(
        source="He et al. 2024, arXiv 2401.16421",
        formula="id(t) = number of separators before t; input += P[place in its segment]",
        tested="as trained",
        extra_parameters="places * width",
    )
    reads_tokens = True
    tests_consecutive = False

    def __init__(
        self, shape: Shape, *, separators: Sequence[str] = (".", "\n"), places: int = 1024
    ) -> None:
        super().__init__(shape)
        self.separators = list(separators)
        if not self.separators or not all(isinstance(s, str) and s for s in self.separators):
            raise ConfigError(
                f"position_ids.separators={self.separators}: must be a list of texts that end a "
                'segment, such as [".", "\\n"]'
            )
        if not 1 <= places <= 2**26:
            raise ConfigError(f"position_ids.places={places}: must be 1 to {2**26} (authors: 1024)")
        self.ends: np.typing.NDArray[np.bool_] | None = None
        self.table = nn.Parameter(torch.empty(places, shape.width).normal_(0.0, 0.02))

    def read_vocabulary(self, pieces: Sequence[bytes]) -> None:
        """Which tokens end a segment.

        Raises:
            ConfigError: none does.
        """
        endings = tuple(text.encode() for text in self.separators)
        self.ends = np.array([piece.endswith(endings) for piece in pieces])
        if not self.ends.any():
            raise ConfigError(
                f"position_ids.separators={self.separators}: no token of the vocabulary ends so"
            )

    def drawn(self, length: int, tokens: Tokens | None, draw: np.random.Generator) -> Ids:
        """The segment of each token, [S]."""
        return self.tested(length, tokens, 0)

    def tested(self, length: int, tokens: Tokens | None, seed: int) -> Ids:
        """The segment of each token, [S]."""
        assert tokens is not None and self.ends is not None
        ends = self.ends[tokens[:length]].astype(np.int64)
        return np.cumsum(ends) - ends

    def embed(self, x: Tensor, ids: Tensor, here: slice) -> Tensor:
        """x [B,T,D], ids [B,S] -> x + sqrt(D) P[m], scaled as the token embeddings are."""
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        starts = torch.ones_like(ids, dtype=torch.bool)
        starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
        place = places - torch.where(starts, places, 0).cummax(1).values
        rows = self.table[place[:, here].clamp(max=len(self.table) - 1)]
        return x + (self.shape.width**0.5 * rows).to(x.dtype)
