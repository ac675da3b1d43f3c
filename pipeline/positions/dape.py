"""DAPE: S' = S + b + f([S; b]), S = q_i . k_j / sqrt(d) of all heads, b the bias of `base`, f = W2
leaky_relu(W1 x + b1) + b2 from 2H over 32 to H numbers for each pair (i, j); the slope of
leaky_relu below zero is 0.01.

Zheng, Gao, Shi, Huang, Li, Xiong, Ren, Ng, Jiang, Li, Li 2024, "DAPE: Data-Adaptive Positional
Encoding", arXiv 2405.14722. f is per layer and starts as `torch.nn.Linear` does, as in the authors'
code; `base` is kerple, in its log form, or alibi. No rank can hold some of the heads only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.alibi import AlibiPosition
from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.kerple import KerplePosition

BASES: dict[str, type[Position]] = {"kerple": KerplePosition, "alibi": AlibiPosition}
HIDDEN = 32
SLOPE = 0.01


class DapePosition(Position):
    """A bias of distance that a small network adapts to the scores of all heads."""

    facts = Facts(
        source="Zheng et al. 2024, arXiv 2405.14722",
        formula="S' = S + b + W2 leaky_relu(W1 [S; b] + b1) + b2 over heads, b of kerple or alibi",
        family="contextual",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="layers * (96 * heads + heads + 32) "
        "+ (2 * heads * layers if base == 'kerple' else 0)",
        head_shardable=False,
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, base: str = "kerple") -> None:
        super().__init__(shape)
        if base not in BASES:
            raise ConfigError(f"position.base={base!r}: must be one of {', '.join(BASES)}")
        self.base, self.form = BASES[base], "log"
        # this module's own: under ZeRO-3, those of a module inside it would not be at hand
        for name, parameter in self.base(shape).named_parameters():
            self.register_parameter(name, parameter)
        layers, heads = shape.layers, shape.heads
        wide, narrow = (2 * heads) ** -0.5, HIDDEN**-0.5
        self.w1 = nn.Parameter(torch.empty(layers, HIDDEN, 2 * heads).uniform_(-wide, wide))
        self.b1 = nn.Parameter(torch.empty(layers, HIDDEN).uniform_(-wide, wide))
        self.w2 = nn.Parameter(torch.empty(layers, heads, HIDDEN).uniform_(-narrow, narrow))
        self.b2 = nn.Parameter(torch.empty(layers, heads).uniform_(-narrow, narrow))

    def transform(self, scores: Tensor, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """scores [B,H,I,J] of all heads, ids [I], [J] -> S', [B,H,I,J]."""
        bias = self.base.bias(self, ids_q, ids_k, site)
        assert bias is not None
        w1, b1, w2, b2 = (
            w[site.layer].to(scores.dtype) for w in (self.w1, self.b1, self.w2, self.b2)
        )
        of_scores, of_bias = w1.chunk(2, dim=-1)
        bias = bias.to(scores.dtype)
        # what is of the bias alone is the same for all sequences of the batch
        shared = torch.addmm(b1[:, None], of_bias, bias.flatten(1))
        hidden = F.leaky_relu(of_scores @ scores.flatten(2) + shared, SLOPE)
        mixed = torch.baddbmm(b2[:, None], w2.expand(len(hidden), -1, -1), hidden)
        return scores + bias + mixed.view_as(scores)
