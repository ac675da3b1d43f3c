"""How attention reaches the tokens that other ranks hold; on one rank, nothing."""

from collections.abc import Callable

from torch import Tensor

from pipeline.model.kernel import Kernel
from pipeline.positions.scores import Scores


class Exchange:
    """The whole sequence on one rank: every head, every token.

    `pipeline.parallel.ulysses` and `pipeline.parallel.ring` override the methods for a sequence
    group. Legend: B batch, T tokens held by this rank, S whole sequence, A tokens this rank
    attends with, H all heads, h heads it attends with, E any width per head.
    """

    def heads(self, heads: int) -> range:
        """Global indices of the heads this rank attends with, of `heads` in all."""
        return range(heads)

    def tokens(self, length: int) -> slice:
        """The part of a sequence of `length` tokens that this rank holds."""
        return slice(0, length)

    def attended(self, length: int) -> slice:
        """The A tokens whose queries this rank answers, of a sequence of `length` tokens."""
        return slice(0, length)

    def to_heads(self, x: Tensor, length: int) -> Tensor:
        """x [B,T,H,E], `length` = S -> [B,A,h,E]."""
        return x

    def to_tokens(self, x: Tensor) -> Tensor:
        """x [B,A,h,E] -> [B,T,H,E]."""
        return x

    def whole(self, x: Tensor, length: int) -> Tensor:
        """x [B,A,h,E] of the tokens this rank attends with, `length` = S -> [B,S,h,E] of all."""
        return x

    def kernel(self, local: Callable[[Scores], Kernel]) -> Kernel | None:
        """The kernel that fetches the keys of other ranks; None if this rank has them all.

        `local` gives the kernel for the scores of a part of the keys.
        """
        return None
