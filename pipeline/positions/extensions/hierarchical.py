"""Hierarchical decomposition of learned positions: N trained rows p are read to N^2 positions,
q_{iN+j} = a u_i + (1 - a) u_j, u = (p - a p_0)/(1 - a), 0 <= i, j < N.

Su 2020, kexue.fm/archives/7947, a = 0.4. Written out, q_{iN+j} = p_j + a/(1 - a) (p_i - p_0), so
that the first N rows are the trained ones to the last bit. With a = 1/2 the rows (i, j) and (j, i)
would be the same.
"""

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.learned import LearnedPosition


class HierarchicalExtension(Extension):
    """The square of the trained positions."""

    about = ExtensionFacts(
        source="Su 2020, kexue.fm/archives/7947",
        formula="P[iN+j] = alpha u_i + (1-alpha) u_j, u = (P - alpha P[0])/(1-alpha), "
        "N = train_length",
        fits="learned",
        changes={},
        same_as_trained={"alpha": 0.4},
    )

    table: Tensor

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It decomposes a table of trained rows."""
        if isinstance(position, LearnedPosition):
            return None
        return "there is no table of positions to be read beyond its end; use it with learned"

    def configure(self, *, alpha: float = 0.4) -> None:  # type: ignore[override]
        """`alpha` is a, the weight of the upper digit."""
        if not 0.0 < alpha < 1.0 or alpha == 0.5:
            raise ConfigError(
                f"extension.alpha={alpha}: must be above 0, below 1 and not 0.5, which gives two "
                "positions one row (the author: 0.4)"
            )
        self.alpha = alpha

    @property
    def max_length(self) -> int | None:
        """N^2."""
        return self.shape.train_length**2

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D], ids [B,T] or [1,T] -> x + sqrt(D) q_ids."""
        table, count = self.table.float(), self.shape.train_length
        upper = table[ids // count] - table[0]
        rows = table[ids % count] + self.alpha / (1.0 - self.alpha) * upper
        return x + self.shape.width**0.5 * rows.to(x.dtype)
