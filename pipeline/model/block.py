"""One decoder block: pre-norm attention, then pre-norm SwiGLU, each added to the stream.

Legend: B batch, T tokens held by this rank, S whole sequence, H all heads, h heads held by this
rank, d head width, D model width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.attention import attention
from pipeline.model.exchange import Exchange
from pipeline.positions.base import Position, Site


def linear(inputs: int, outputs: int, scale: float = 1.0) -> nn.Linear:
    """A projection without bias, weights ~ N(0, scale / sqrt(inputs))."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, 0.0, scale * inputs**-0.5)
    return layer


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + 1e-6) * g, in fp32. Zhang and Sennrich 2019, arXiv 1910.07467."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """x [...,D] -> [...,D], in the precision of `x`."""
        return F.rms_norm(x.float(), (x.shape[-1],), self.gain.float(), 1e-6).to(x.dtype)


class Attention(nn.Module):
    """Multi-head causal attention; where and how positions enter is the encoding's business."""

    def __init__(self, width: int, heads: int, layer: int, layers: int) -> None:
        super().__init__()
        self.heads, self.head_width, self.layer = heads, width // heads, layer
        # head-major (q, k, v of head 0, then of head 1, ...): one exchange carries all three
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width, (2 * layers) ** -0.5)

    def forward(self, x: Tensor, ids: Tensor, position: Position, exchange: Exchange) -> Tensor:
        """x [B,T,D], ids [B,S] or [1,S] global positions -> [B,T,D]."""
        qkv = self.qkv(x).unflatten(-1, (self.heads, 3 * self.head_width))
        qkv = exchange.to_heads(qkv, ids.shape[1]).transpose(1, 2)
        q, k, v = qkv.split(self.head_width, dim=-1)
        site = Site(self.layer, exchange.heads(self.heads), ids.shape[1])
        q, k = position("rotate", q, k, ids, site)
        mixed = attention(q, k, v, position("distance_table", site, q.device))
        return self.out(exchange.to_tokens(mixed.transpose(1, 2)).flatten(2))


class SwiGLU(nn.Module):
    """W_out(silu(x W_gate) * (x W_up)). Shazeer 2020, arXiv 2002.05202."""

    def __init__(self, width: int, mlp_width: int, layers: int) -> None:
        super().__init__()
        self.gate_up = linear(width, 2 * mlp_width)
        self.out = linear(mlp_width, width, (2 * layers) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x [B,T,D] -> [B,T,D]."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * up)


class Block(nn.Module):
    """x + Attention(RMSNorm(x)), then x + SwiGLU(RMSNorm(x))."""

    def __init__(self, width: int, heads: int, mlp_width: int, layer: int, layers: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, layer, layers)
        self.mlp = SwiGLU(width, mlp_width, layers)

    def forward(self, x: Tensor, ids: Tensor, position: Position, exchange: Exchange) -> Tensor:
        """x [B,T,D], ids [B,S] or [1,S] -> [B,T,D]."""
        x = x + self.attention(self.attention_norm(x), ids, position, exchange)
        return x + self.mlp(self.mlp_norm(x))
