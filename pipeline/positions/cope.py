"""CoPE: S_ij = s_ij + q_i . e[p_ij], s_ij = q_i . k_j / sqrt(d), p_ij = min(sum_{l=j..i}
sigmoid(s_il), N - 1), e read between whole p in proportion; N = `positions`, e [N,d] per layer.

Golovneva, Wang, Weston, Sukhbaatar 2024, arXiv 2405.18719. e is shared by the heads and starts at
zero. As in the paper's listing gates are of the scaled scores, keys that a query does not see count
nothing, and q . e is added after the 1/sqrt(d); the authors' training code divides it too, by
default, which is the same model with another scale of e.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.scores import Scores


class CopePosition(Position):
    """Positions that count what the query looks for, not tokens."""

    facts = Facts(
        source="Golovneva et al. 2024, arXiv 2405.18719",
        formula="S_ij = s_ij + q_i.e[min(sum_{l=j..i} sigmoid(s_il), N-1)], s_ij = q_i.k_j/sqrt(d)",
        family="contextual",
        shift_invariant=True,
        attention_paths=("contextual",),
        extra_parameters="layers * positions * (width // heads)",
        ring_shardable=False,
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, positions: int = 64) -> None:
        super().__init__(shape)
        if not 2 <= positions <= 2**20:
            raise ConfigError(
                f"position.positions={positions}: must be 2 to {2**20} (64 is usual); with fewer "
                "all keys have the same position"
            )
        self.table = nn.Parameter(torch.zeros(shape.layers, positions, shape.head_width))

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """With e of this layer as the context."""
        context = partial(self._context, site.layer)
        return replace(scores, context=context, parameters=tuple(self.parameters()))

    def _context(self, layer: int) -> Tensor:
        """e of one layer for all heads, [1,N,d] fp32."""
        return self.table[layer].float()[None]
