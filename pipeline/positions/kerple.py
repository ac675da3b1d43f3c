"""KERPLE: S_ij = q_i . k_j / sqrt(d) - r1 log(1 + r2 (i - j)) (log), or - r1 (i - j)^r2 (power),
with r1, r2 > 0 (r2 < 2 in the power form) learned per head and layer.

Chi, Fan, Ramadge, Rudnicky 2022, arXiv 2205.09921, equations 4 and 5. Positive by construction,
r = softplus(raw), or 2 sigmoid(raw) for the power's exponent: the authors' clamp of `.data` is
invisible to the gradient and unsafe with sharded weights. They start as in the authors' code: the
log form with r1 ~ U(0, 2) and r2 ~ U(0, 1), the power form with r1 ~ U(0, 1) and r2 ~ U(0, 2).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

FORMS = ("log", "power")
_LEAST = 1e-2  # of a draw, as in the authors' clamp


def _raw_of_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))


class KerplePosition(Position):
    """A conditionally positive definite kernel of distance."""

    facts = Facts(
        source="Chi et al. 2022, arXiv 2205.09921",
        formula="S_ij = q_i.k_j/sqrt(d) - r1 log(1 + r2(i-j)), or - r1(i-j)^r2",
        family="bias",
        shift_invariant=True,
        attention_paths=("tile", "flex"),
        real_positions=True,
        extra_parameters="2 * heads * layers",
    )

    def __init__(self, shape: Shape, *, form: str = "log") -> None:
        super().__init__(shape)
        if form not in FORMS:
            raise ConfigError(f"position.form={form!r}: must be one of {', '.join(FORMS)}")
        self.form = form
        size = (shape.layers, shape.heads)
        highest = (2.0, 1.0) if form == "log" else (1.0, 2.0)
        first, second = (torch.empty(size).uniform_(_LEAST, high) for high in highest)
        self.raw_r1 = nn.Parameter(_raw_of_softplus(first))
        self.raw_r2 = nn.Parameter(
            _raw_of_softplus(second) if form == "log" else torch.logit(second / 2.0)
        )

    def bias(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> [h,I,J] fp32; keys after the query count as distance 0."""
        distance = (ids_q[:, None] - ids_k).clamp(min=0).float()
        raw_r1, raw_r2 = (
            raw[site.layer, site.held, None, None] for raw in (self.raw_r1, self.raw_r2)
        )
        r1 = F.softplus(raw_r1.float())
        if self.form == "log":
            return -r1 * torch.log1p(F.softplus(raw_r2.float()) * distance)
        return -r1 * distance ** (2.0 * torch.sigmoid(raw_r2.float()))
