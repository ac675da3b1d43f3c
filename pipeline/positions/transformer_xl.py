"""Transformer-XL: S_ij = ((q_i + u) . k_j + (q_i + v) . W_R R[i - j]) / sqrt(d), with
R[n] = [sin(n w_t) | cos(n w_t)], w_t = 10000^(-2t/w), t < w/2, w the width of R.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, arXiv 1901.02860, section 3.3, without the
memory of earlier segments. u, v [H,d] are shared by all layers, W_R is per layer; all ~ N(0, 0.02)
as in the authors' code. `relative_width` = model is the paper's w = D, W_R [D,D]; head is w = d,
one W_R [d,d] per head, which costs no table by distance.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

WIDTHS = ("model", "head")


class TransformerXlPosition(Position):
    """Content against a projected sinusoid of the distance, and one bias per head for each.

    `untied`: every layer has a u and a v of its own.
    """

    untied: ClassVar[bool] = False
    facts = Facts(
        source="Dai et al. 2019, arXiv 1901.02860",
        formula="S_ij = ((q_i+u).k_j + (q_i+v).W_R R[i-j])/sqrt(d), R[n] = [sin n w_t | cos n w_t]",
        family="relative vectors",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="2 * width + layers * width * "
        "(width if relative_width == 'model' else width // heads)",
    )

    def __init__(self, shape: Shape, *, relative_width: str = "model") -> None:
        super().__init__(shape)
        if relative_width not in WIDTHS:
            raise ConfigError(
                f"position.relative_width={relative_width!r}: must be one of {', '.join(WIDTHS)} "
                "(the paper: model)"
            )
        self.by_columns = relative_width == "head"
        d = shape.head_width
        self.relative_width = d if self.by_columns else shape.width
        if self.relative_width % 2:
            raise ConfigError(
                f"position.relative_width={relative_width!r}, which is {self.relative_width} here: "
                "the sinusoid pairs a sine with a cosine, so it must be even; choose another "
                "model.width or model.heads"
            )
        size = (shape.layers, shape.heads, d, self.relative_width)
        biases = (shape.layers, shape.heads, d) if self.untied else (shape.heads, d)
        self.content_bias = nn.Parameter(torch.empty(biases).normal_(0.0, 0.02))
        self.position_bias = nn.Parameter(torch.empty(biases).normal_(0.0, 0.02))
        self.projection = nn.Parameter(torch.empty(size).normal_(0.0, 0.02))

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d] -> q + u, k; or, of relative width d, both [B,h,S,2d]."""
        plain = self._biased(q, self.content_bias, site)
        if not self.by_columns:
            return plain, k
        turned = self._biased(q, self.position_bias, site) @ self._projection(site, q)
        a, b = turned.float().chunk(2, dim=-1)
        return with_columns(plain, k, a, b, ids)

    def relative_keys(self, q: Tensor, site: Site) -> tuple[Tensor, Tensor] | None:
        """q [B,h,S,d] -> q + v and W_R R [h,S,d], fp32; None where columns do it."""
        if self.by_columns:
            return None
        distances = torch.arange(site.length, device=q.device)
        rows = torch.cat(waves(distances, self.relative_width), dim=-1)
        table = rows @ self._projection(site, rows).transpose(1, 2)
        return self._biased(q, self.position_bias, site), table

    def _biased(self, q: Tensor, bias: Tensor, site: Site) -> Tensor:
        """q [B,h,S,d] + bias, u or v, of the held heads."""
        own = bias[site.layer] if self.untied else bias
        return q + own[site.held, None].to(q.dtype)

    def _projection(self, site: Site, like: Tensor) -> Tensor:
        """W_R of the held heads, [h,d,w], in the precision of `like`."""
        return self.projection[site.layer, site.held].to(like.dtype)


def waves(n: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Positions n [...] -> sin(n w_t), cos(n w_t) [...,w/2] fp32, of width w; angles fp64."""
    pairs = torch.arange(width // 2, device=n.device, dtype=torch.float64)
    angles = n[..., None].double() * 10000.0 ** (-2.0 * pairs / width)
    return angles.sin().float(), angles.cos().float()


def with_columns(q: Tensor, k: Tensor, a: Tensor, b: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """q, k [B,h,S,d], a, b [B,h,S,w/2] fp32, ids [B,S] or [1,S] -> q, k [B,h,S,d+w] of product
    q_i . k_j + a_i . sin (i-j)w_t + b_i . cos (i-j)w_t.

    The latter two are (a_i sin iw + b_i cos iw) . cos jw + (b_i sin iw - a_i cos iw) . sin jw.
    """
    sin, cos = (wave[:, None] for wave in waves(ids, 2 * a.shape[-1]))
    queries = torch.cat([a * sin + b * cos, b * sin - a * cos], dim=-1).to(q.dtype)
    keys = torch.cat([cos, sin], dim=-1).to(k.dtype).expand(*k.shape[:2], -1, -1)
    return torch.cat([q, queries], dim=-1), torch.cat([k, keys], dim=-1)
