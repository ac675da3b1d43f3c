"""FIRE: S_ij = q_i . k_j / sqrt(d) + f_h(x_ij), x_ij = psi(i - j) / (psi(max(L, i)) + 1e-6),
psi(n) = log(|c| n + 1), L = |m| `threshold_share` train_length, f = W2 relu(w1 x + b1) + b2.

Li, You, Guruganesh, Ainslie, Ontanon, Zaheer, Sanghai, Yang, Kumar, Bhojanapalli 2024, arXiv
2310.04418; i counts from 0. Per layer: a network 1 -> 32 -> H that starts as
`torch.nn.Linear` does, c from 0.1, m from 1. The paper's L is 512 for 2048 training tokens, a
share of 0.25. x is in [0, 1]; rows beyond L are not functions of i - j.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

HIDDEN = 32
_EPSILON = 1e-6


class FirePosition(Position):
    """Functional interpolation for relative position encoding."""

    facts = Facts(
        source="Li et al. 2024, arXiv 2310.04418",
        formula="S_ij = q_i.k_j/sqrt(d) + f_h(log(c(i-j)+1) / (log(c max(L,i)+1) + 1e-6))",
        family="bias",
        shift_invariant=False,
        attention_paths=("tile",),
        real_positions=True,
        extra_parameters="layers * (2 * 32 + 33 * heads + 2)",
    )

    def __init__(self, shape: Shape, *, threshold_share: float = 0.25) -> None:
        super().__init__(shape)
        if not threshold_share > 0.0:
            raise ConfigError(
                f"position.threshold_share={threshold_share}: must be above 0 (the paper: 0.25)"
            )
        self.threshold = threshold_share * shape.train_length
        layers, spread = shape.layers, HIDDEN**-0.5
        self.w1 = nn.Parameter(torch.empty(layers, HIDDEN).uniform_(-1.0, 1.0))
        self.b1 = nn.Parameter(torch.empty(layers, HIDDEN).uniform_(-1.0, 1.0))
        self.w2 = nn.Parameter(torch.empty(layers, shape.heads, HIDDEN).uniform_(-spread, spread))
        self.b2 = nn.Parameter(torch.empty(layers, shape.heads).uniform_(-spread, spread))
        self.c = nn.Parameter(torch.full((layers,), 0.1))
        self.m = nn.Parameter(torch.ones(layers))

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> f_h(x_ij) [h,I,J] fp32; where j > i, x is 0."""
        n, held = site.layer, site.held
        c, least = self.c[n].float().abs(), self.m[n].float().abs() * self.threshold
        distance = (ids_q[:, None] - ids_k).clamp(min=0).float()
        scale = torch.log1p(c * torch.maximum(least, ids_q.float())) + _EPSILON
        x = torch.log1p(c * distance) / scale[:, None]
        weights = self.w1[n], self.b1[n], self.w2[n, held], self.b2[n, held]
        return _network(x, *(w.float() for w in weights))


def _network(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """x [I,J]; w1, b1 [32]; w2 [h,32]; b2 [h] -> w2 relu(w1 x + b1) + b2, [h,I,J].

    The x of one tile span a short interval. A hidden unit that is off at both of its ends is off
    between them; those that are on at both add up to one line per head, slope x + shift. Only the
    units that bend in between are computed for every pair: exact, and a few of the 32.
    """
    if x.is_meta:  # no values to look at
        bent, on = list(range(len(w1))), torch.zeros_like(w1)
    else:
        ends = torch.stack(x.detach().aminmax())
        active = (ends[:, None] * w1 + b1 > 0).sum(0)
        bent, on = (active == 1).nonzero()[:, 0].tolist(), (active == 2).float()
    slope, shift = w2 @ (on * w1), w2 @ (on * b1) + b2
    x = x[:, None]
    planes = torch.cat([x, torch.relu(w1[bent, None] * x + b1[bent, None])], dim=1)
    coefficients = torch.cat([slope[:, None], w2[:, bent]], dim=1)
    # a product per row: in its gradient, one over all pairs would lose digits to its longer sums
    per_row = coefficients.expand(len(x), -1, -1)
    return torch.baddbmm(shift[:, None], per_row, planes).transpose(0, 1)
