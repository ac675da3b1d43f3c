"""FoX: S_ij = q_i . k_j / sqrt(d) + log f_{j+1} + ... + log f_i = q_i . k_j / sqrt(d) + c_i - c_j,
f_t = sigmoid(w_h . x_t + b_h), c = cumsum(log f), x the stream that queries and keys are made of.

Lin, Nikishin, He, Courville 2025, "Forgetting Transformer", arXiv 2503.02130: the forget gates
alone, without the output gates and norms of its "Pro" block. w and b are per layer and head, and
start as in the authors' code, w ~ N(0, 0.02) and b = 0: gates of about 1/2. c is summed in fp64: in
fp32 it loses the third decimal of a gate within 65,536 tokens.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.positions.base import Facts, Position, Shape, Site


class FoxPosition(Position):
    """Forget gates that read the text: each token, per head, lets a share of the past through."""

    facts = Facts(
        source="Lin et al. 2025, arXiv 2503.02130",
        formula="S_ij = q_i.k_j/sqrt(d) + sum_{l=j+1..i} log f_l, f_t = sigmoid(w_h.x_t + b_h)",
        family="contextual",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="layers * heads * (width + 1)",
        real_positions=True,
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        size = (shape.layers, shape.heads)
        self.w = nn.Parameter(torch.empty(*size, shape.width).normal_(0.0, 0.02))
        self.b = nn.Parameter(torch.zeros(size))

    def gate_logits(self, project: Callable[[Tensor], Tensor], layer: int) -> Tensor:
        """`project(W [H,D])` -> W x [B,T,H]; returns w . x + b, [B,T,H]."""
        return project(self.w[layer]) + self.b[layer]

    def decay(self, logits: Tensor, site: Site) -> Tensor:
        """Logits of the whole sequence, [B,h,S] -> c [B,h,S] fp64."""
        return F.logsigmoid(logits.double()).cumsum(-1)
