"""TENER: S_ij = (q_i + u) . k_j + (q_i + v) . R[i - j], R[n]_2t = sin(n w_t), R[n]_2t+1 =
cos(n w_t), w_t = 10000^(-2t/d), t < d/2.

Yan, Deng, Li, Qiu 2019, arXiv 1911.04474, the adapted attention: the scores are not divided by
sqrt(d) and R is not projected, so that the sine tells what is before from what is after. u, v
[layers,H,d] start Xavier normal, as in the authors' code, whose further term k_j . R the paper does
not have. The paper also reads keys straight from the stream; W_K stays here, so that encodings
differ in positions alone.

`scaled` = true divides by sqrt(d) after all: unscaled scores of a deep decoder are large, and its
training less stable.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site
from pipeline.positions.transformer_xl import with_columns


class TenerPosition(Position):
    """Content against a sinusoid of the distance as it is, and one bias per head for each."""

    facts = Facts(
        source="Yan et al. 2019, arXiv 1911.04474",
        formula="S_ij = (q_i+u).k_j + (q_i+v).R[i-j], R[n] = [sin n w_t, cos n w_t]",
        family="relative vectors",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="2 * layers * width",
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, scaled: bool = False) -> None:
        super().__init__(shape)
        if shape.head_width % 2:
            raise ConfigError(
                f"model.width / model.heads = {shape.head_width}: tener pairs a sine with a "
                "cosine, so the head width must be even"
            )
        self.scaled = scaled
        size = (shape.layers, shape.heads, shape.head_width)
        spread = (2.0 / (shape.heads + shape.head_width)) ** 0.5
        self.content_bias = nn.Parameter(torch.empty(size).normal_(0.0, spread))
        self.position_bias = nn.Parameter(torch.empty(size).normal_(0.0, spread))

    @property
    def scale(self) -> float:
        """1, or with `scaled` 1/sqrt(d)."""
        return super().scale if self.scaled else 1.0

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> both [B,h,S,2d]."""
        u, v = (
            bias[site.layer, site.held, None] for bias in (self.content_bias, self.position_bias)
        )
        pairs = (q.float() + v.float()).unflatten(-1, (-1, 2))
        return with_columns(q + u.to(q.dtype), k, pairs[..., 0], pairs[..., 1], ids)
