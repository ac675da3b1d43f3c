"""Transformer-XL: S_ij = ((q_i + u) . k_j + (q_i + v) . W_R R[i - j]) / sqrt(d), with
R[n] = [sin(n w_t) | cos(n w_t)], w_t = 10000^(-2t/w), t < w/2, w the width of R.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, arXiv 1901.02860, section 3.3, without the
memory of earlier segments. u, v [H,d] are shared by all layers, W_R is per layer; all ~ N(0, 0.02)
as in the authors' code. `relative_width` = model is the paper's w = D, W_R [D,D]; head is w = d,
one W_R [d,d] per head, which costs no table by distance.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape, Site

WIDTHS = ("model", "head")


class TransformerXlPosition(Position):
    """Content against a projected sinusoid of the distance, and one bias per head for each."""

    facts = Facts(
        source="Dai et al. 2019, arXiv 1901.02860",
        formula="S_ij = ((q_i+u).k_j + (q_i+v).W_R R[i-j])/sqrt(d), R[n] = [sin n w_t | cos n w_t]",
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
                "transformer_xl pairs a sine with a cosine, so it must be even; choose another "
                "model.width or model.heads"
            )
        size = (shape.layers, shape.heads, d, self.relative_width)
        self.content_bias = nn.Parameter(torch.empty(shape.heads, d).normal_(0.0, 0.02))
        self.position_bias = nn.Parameter(torch.empty(shape.heads, d).normal_(0.0, 0.02))
        self.projection = nn.Parameter(torch.empty(size).normal_(0.0, 0.02))

    def rotate(self, q: Tensor, k: Tensor, ids: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """q, k [B,h,S,d] -> q + u, k; or, of relative width d, both [B,h,S,2d].

        With (a, b) = W_R^T (q_i + v), (q_i + v) . W_R R[i - j] = a . sin (i-j)w + b . cos (i-j)w =
        (a sin iw + b cos iw) . cos jw + (b sin iw - a cos iw) . sin jw: a product of columns.
        """
        plain = q + _held(self.content_bias, site).to(q.dtype)
        if not self.by_columns:
            return plain, k
        turned = (q + _held(self.position_bias, site).to(q.dtype)) @ self._projection(site, q)
        a, b = turned.float().chunk(2, dim=-1)
        sin, cos = (wave[:, None] for wave in self._waves(ids))
        queries = torch.cat([a * sin + b * cos, b * sin - a * cos], dim=-1).to(q.dtype)
        keys = torch.cat([cos, sin], dim=-1).to(k.dtype).expand(*k.shape[:2], -1, -1)
        return torch.cat([plain, queries], dim=-1), torch.cat([k, keys], dim=-1)

    def relative_keys(self, q: Tensor, site: Site) -> tuple[Tensor, Tensor] | None:
        """q [B,h,S,d] -> q + v and W_R R [h,S,d], fp32; None where columns do it."""
        if self.by_columns:
            return None
        distances = torch.arange(site.length, device=q.device)
        waves = torch.cat(self._waves(distances), dim=-1)
        table = waves @ self._projection(site, waves).transpose(1, 2)
        return q + _held(self.position_bias, site).to(q.dtype), table

    def _projection(self, site: Site, like: Tensor) -> Tensor:
        """W_R of the held heads, [h,d,w], in the precision of `like`."""
        held = slice(site.heads.start, site.heads.stop)
        return self.projection[site.layer, held].to(like.dtype)

    def _waves(self, n: Tensor) -> tuple[Tensor, Tensor]:
        """Integers n [...] -> sin(n w_t), cos(n w_t) [...,w/2] fp32; angles fp64."""
        pairs = torch.arange(self.relative_width // 2, device=n.device, dtype=torch.float64)
        angles = n[..., None].double() * 10000.0 ** (-2.0 * pairs / self.relative_width)
        return angles.sin().float(), angles.cos().float()


def _held(bias: Tensor, site: Site) -> Tensor:
    """[H,d] -> [h,1,d]."""
    return bias[site.heads.start : site.heads.stop, None]
