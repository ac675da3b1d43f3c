"""How attention trades a shard of the tokens for a shard of the heads; on one rank, nothing."""

from torch import Tensor


class Exchange:
    """The whole sequence on one rank: every head, every token.

    `pipeline.parallel.ulysses` overrides all four methods for a sequence group. Legend: B batch,
    T tokens held by this rank, S whole sequence, H all heads, h heads held by this rank, E any
    width per head.
    """

    def heads(self, heads: int) -> range:
        """Global indices of the heads this rank attends with, of `heads` in all."""
        return range(heads)

    def tokens(self, length: int) -> slice:
        """The part of a sequence of `length` tokens that this rank holds."""
        return slice(0, length)

    def to_heads(self, x: Tensor, length: int) -> Tensor:
        """x [B,T,H,E], `length` = S -> [B,S,h,E]."""
        return x

    def to_tokens(self, x: Tensor) -> Tensor:
        """x [B,S,h,E] -> [B,T,H,E]."""
        return x
