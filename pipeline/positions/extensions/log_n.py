"""Log-n: query i is multiplied by max(1, log_N n), n = i + 1 the keys it sees, or those of the
window, N the training length or a share of it, so that attention over more keys stays as peaked as
it was over N.

Su 2021, kexue.fm/archives/8823; at test time alone, with the 1 as the least, as in the code
bojone/rerope. What is multiplied is q as its encoding leaves it, in every product with keys and
with vectors that queries read by distance; biases, and vectors that keys read, stay as they are.
"""

import math
from dataclasses import replace

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.scores import Scores
from pipeline.positions.tupe import TupePosition


class LogLengthExtension(Extension):
    """Queries that grow with the logarithm of what they see."""

    about = ExtensionFacts(
        source="Su 2021, kexue.fm/archives/8823",
        formula="q_i -> q_i max(1, log(n)/log(N)), n = min(i+1, window), "
        "N = length_share train_length",
        fits="all encodings but tupe",
        changes={"shift_invariant": False},
        counts_tokens=True,
        same_as_trained={"length_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """Every encoding has products of queries and keys; of one, biases are in them."""
        if isinstance(position, TupePosition):
            return "what positions add is part of its queries, and would be multiplied too"
        return None

    def configure(self, *, length_share: float = 1.0) -> None:  # type: ignore[override]
        """The factor is 1 up to `length_share` of the training length."""
        tokens = length_share * self.shape.train_length
        if not 2.0 <= tokens < math.inf:
            raise ConfigError(
                f"extension.length_share={length_share}: {tokens} tokens of train_length="
                f"{self.shape.train_length}; must give at least 2, to be the base of a logarithm "
                "(the author: 1.0)"
            )
        self.unit_length = tokens

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """Those of the trained encoding, its queries multiplied."""
        found = super().adjust(scores, ids, site)
        seen = (ids.double() + 1.0).clamp(max=found.window or math.inf)
        grown = seen.log() / math.log(self.unit_length)
        factor = grown.clamp(min=1.0).float()[:, None, :, None]
        queries = found.queries
        return replace(
            found,
            pairs=tuple((_times(own, factor), keys) for own, keys in found.pairs),
            queries=None if queries is None else _times(queries, factor),
            folded=None,
        )


def _times(q: Tensor, factor: Tensor) -> Tensor:
    """q [B,h,S,E], factor [B or 1,1,S,1] fp32 -> their product in the precision of q."""
    return (q.float() * factor).to(q.dtype)
