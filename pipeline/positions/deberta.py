"""DeBERTa, disentangled attention:
S_ij = (q_i . k_j + q_i . W_K P[m_ij] + k_j . W_Q P[m'_ij]) / sqrt(3d), with m_ij =
delta(i, j) = clip(i - j + k, 0, 2k - 1), k = `span_share` train_length. P [2k,D] is shared by all
layers; W_K, W_Q [D,D] are per layer; all ~ N(0, 0.02), as in the authors' code.

He, Liu, Gao, Chen 2021, arXiv 2006.03654, section 3.1, equation 4. The paper reads the second table
at m' = delta(j, i); the released code gathers it at m' = delta(i, j), and so do the models trained
with it. `form` = code or paper; at distance n = i - j >= 0 of a causal model they read

| form  | W_K P at row       | W_Q P at row | rows of P that are read | constant from n = |
|-------|--------------------|--------------|-------------------------|-------------------|
| code  | min(k + n, 2k - 1) | the same     | k .. 2k - 1             | k - 1             |
| paper | min(k + n, 2k - 1) | max(k - n, 0)| 0 .. 2k - 1             | k                 |

and of P only the rows that are read exist. The paper's k is the length it trains on, 512 of 512; no
gradient would reach a row of a larger distance. Neither values nor the input have positions, and
the decoder with absolute positions of masked language models is not here.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.facts import share_of

FORMS = ("code", "paper")


class DebertaPosition(Position):
    """Content against projected vectors by clipped distance, from queries and from keys."""

    facts = Facts(
        source="He et al. 2021, arXiv 2006.03654",
        formula="S_ij = (q_i.k_j + q_i.W_K P[i-j] + k_j.W_Q P'[i-j])/sqrt(3d), clipped at k",
        family="relative vectors",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="2 * layers * width**2 + width * (1 if form == 'code' else 2) "
        "* span_share * train_length",
    )

    def __init__(self, shape: Shape, *, span_share: float = 1.0, form: str = "code") -> None:
        super().__init__(shape)
        if form not in FORMS:
            raise ConfigError(
                f"position.form={form!r}: must be one of {', '.join(FORMS)} (the released models: "
                "code)"
            )
        length, self.as_printed = shape.train_length, form == "paper"
        self.span = share_of("position.span_share", span_share, length, "the paper: 1.0")
        if self.span > length:
            raise ConfigError(
                f"position.span_share={span_share}: must be at most 1 (the paper: 1), since "
                "training reaches no larger distance"
            )
        rows = self.span * (2 if self.as_printed else 1)
        size = (shape.layers, shape.heads, shape.head_width, shape.width)
        self.table = nn.Parameter(torch.empty(rows, shape.width).normal_(0.0, 0.02))
        self.key_projection = nn.Parameter(torch.empty(size).normal_(0.0, 0.02))
        self.query_projection = nn.Parameter(torch.empty(size).normal_(0.0, 0.02))

    @property
    def scale(self) -> float:
        """1/sqrt(3d): a sum of three products."""
        return float((3 * self.shape.head_width) ** -0.5)

    @property
    def constant_from(self) -> int:
        """The first distance of the last row that each table reads."""
        return self.span if self.as_printed else self.span - 1

    def relative_keys(self, q: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q [B,h,S,d] -> q and W_K P by distance, [h,N,d] fp32."""
        last = self.table[-1:].expand(int(self.as_printed), -1)
        rows = torch.cat([self.table[-self.span :], last])
        return q, _projected(rows, self.key_projection, site)

    def relative_queries(self, site: Site) -> Tensor:
        """W_Q P by distance, [h,N,d] fp32."""
        rows = self.table[: self.span + 1].flip(0) if self.as_printed else self.table
        return _projected(rows, self.query_projection, site)


def _projected(rows: Tensor, projection: Tensor, site: Site) -> Tensor:
    """rows [N,D], projection [layers,H,d,D] -> [h,N,d] fp32."""
    return rows.float() @ projection[site.layer, site.held].float().transpose(1, 2)
