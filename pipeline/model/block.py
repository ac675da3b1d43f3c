"""One decoder block: pre-norm attention, then pre-norm SwiGLU, each added to the stream.

Legend: B batch, T tokens held by this rank, S whole sequence, H all heads, h heads held by this
rank, d head width, D model width.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.config.schema import ModelConfig
from pipeline.model.attention import attention
from pipeline.model.exchange import Exchange
from pipeline.model.mlp import FeedForward, linear_weight
from pipeline.model.modifiers import Modifiers, attention_mask
from pipeline.model.projection import RMS_NORM, projection, rms_norm
from pipeline.positions.base import Position, Site


class RMSNorm(nn.Module):
    """The norm by itself, for the end of the stream; inside a block it is part of a projection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """x [...,D] -> [...,D], in the precision of `x`."""
        return rms_norm(x, self.gain)


class Attention(nn.Module):
    """Multi-head causal attention of the normalised stream; where and how positions enter is the
    encoding's business."""

    def __init__(self, model: ModelConfig, layer: int, train_length: int) -> None:
        super().__init__()
        width, layers = model.width, model.layers
        self.heads, self.head_width, self.layer = model.heads, model.head_width, layer
        self.path, self.window = model.attention_path, model.attention_window
        self.mask = partial(attention_mask, model)
        self.modifiers = Modifiers(model, train_length)
        self.gain = nn.Parameter(torch.ones(width))
        # head-major (q, k, v of head 0, then of head 1, ...): one exchange carries all three
        self.qkv = linear_weight(width, 3 * width)
        self.out = linear_weight(width, width, (2 * layers) ** -0.5)

    def forward(
        self, x: Tensor, ids: Tensor, position: Position, exchange: Exchange, consecutive: bool
    ) -> Tensor:
        """x [B,T,D], ids [B,S] or [1,S] global positions -> [B,T,D]."""
        length = ids.shape[1]
        project = partial(self._project, x)
        qkv = project(self.qkv).unflatten(-1, (self.heads, 3 * self.head_width))
        gates = position("gate_logits", project, self.layer)
        if gates is not None:
            qkv = torch.cat([qkv, gates.unsqueeze(-1)], dim=-1)
        qkv = exchange.to_heads(qkv, length).transpose(1, 2)
        q, k, v, *more = qkv.split(self.head_width, dim=-1)
        if more:
            gates = exchange.whole(more[0].transpose(1, 2), length).squeeze(-1).transpose(1, 2)
        heads, here = exchange.heads(self.heads), exchange.attended(length)
        site = Site(self.layer, heads, length, here, consecutive)
        q, k = self.modifiers(q, k, site, position.scale)
        mask = self.mask(heads, self.training)
        attend = partial(attention, path=self.path, exchange=exchange)
        mixed = position("attend", attend, q, k, v, ids, site, self.window, mask, gates)
        return F.linear(exchange.to_tokens(mixed.transpose(1, 2)).flatten(2), self.out)

    def _project(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [B,T,D], weight [O,D] -> W norm(x) [B,T,O]."""
        return projection(RMS_NORM, weight, x, self.gain)


class Block(nn.Module):
    """x + Attention(RMSNorm(x)), then x + SwiGLU(RMSNorm(x))."""

    def __init__(self, model: ModelConfig, layer: int, train_length: int) -> None:
        super().__init__()
        self.attention = Attention(model, layer, train_length)
        self.mlp = FeedForward(model.width, model.mlp_width, model.layers, model.tiled_mlp)

    def forward(
        self, x: Tensor, ids: Tensor, position: Position, exchange: Exchange, consecutive: bool
    ) -> Tensor:
        """x [B,T,D], ids [B,S] or [1,S] -> [B,T,D]."""
        x = x + self.attention(x, ids, position, exchange, consecutive)
        return x + self.mlp(x)
