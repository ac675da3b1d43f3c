"""What changes attention under any encoding: queries and keys before it, masks, layers without it.

q_i <- f_i N(q_i + a_h)    k_j <- N'(k_j + b_h)    a, b learned with `qk_bias`, else 0

| `qk_norm` | N(q)                   | N'(k)   | scores of plain products             |
|-----------|------------------------|---------|--------------------------------------|
| none      | q                      | k       | q.k scale                            |
| key       | q / scale              | k / |k| | q.k / |k|                            |
| cosine    | lambda q / (|q| scale) | k / |k| | lambda cos(q, k), lambda = 4 ln(L/2) |

f_i = 1, or by `score_scale`: ln n / ln L (log_n; after cosine ln n / ln(L/2), so that lambda grows
as 4 ln n), s_h ln n (ssmax), s learned; n = max(i + 1, 2), in a window of w > 1 tokens min(n, w),
masks aside. All of it comes before the encoding, so that a bias which an encoding adds to scores is
not scaled, and vectors that it multiplies q or k with are; one that takes more than products of
them (a softplus, a gate) takes these q and k. `scale` is the encoding's own, mostly 1/sqrt(d).

Query i sees i + 1 keys, whatever ids the tokens have. One key has all the weight under any score,
so that n = 2 for i = 0 changes nothing in softmax; it keeps a factor of ln 1 = 0 from erasing the
query where an encoding reads more from it. s starts at 1 / ln L, as log_n has it. b adds q_i.b to
the whole row i, which softmax does not see: without an encoding and without `qk_norm` it gets no
gradient; a does.

Biases with rope: Su 2023, kexue.fm/archives/9577. Key norm and cosine: Su 2023,
kexue.fm/archives/9859 (Henry et al. 2020, arXiv 2010.04245, have a learned lambda). log-n: Su,
kexue.fm/archives/8823. ssmax: Nakanishi 2025, arXiv 2501.19399; the start of s is a choice made
here. Layers without an encoding: Yang et al. 2025, arXiv 2501.18795. Dropping it: Gelberg et al.
2025, arXiv 2512.12167.

Legend: B batch, A tokens this rank attends with, S whole sequence, h heads held by this rank of H,
d head width, L train length, of a continued run that of the run that trained the weights first.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.config.schema import Config, ModelConfig
from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.masks import blockwise, shifted_groups
from pipeline.positions.none import NoPosition
from pipeline.positions.scores import Pairwise

# what an encoding may have of its own without acting in attention
_ELSEWHERE = ("embed", "max_length", "check_length", "has")


class Modifiers(nn.Module):
    """Of one layer; parameters are of all heads, whichever this rank holds."""

    def __init__(self, model: ModelConfig, train_length: int) -> None:
        super().__init__()
        self.norm, self.score_scale = model.qk_norm, model.score_scale
        self.biased = model.qk_bias
        self.train_length, self.window = train_length, model.attention_window
        if model.qk_bias:
            # flat, as the bias of a projection is, and like it without weight decay
            self.query_bias = nn.Parameter(torch.zeros(model.width))
            self.key_bias = nn.Parameter(torch.zeros(model.width))
        if model.score_scale == "ssmax":
            self.score_factor = nn.Parameter(torch.full((model.heads,), 1 / math.log(train_length)))

    def forward(self, q: Tensor, k: Tensor, site: Site, scale: float) -> tuple[Tensor, Tensor]:
        """q, k [B,h,A,d] of `site.tokens` -> the same, in the same precision; `scale` is what the
        encoding multiplies their products with."""
        return self._queries(q, site, scale), self._keys(k, site)

    def _queries(self, q: Tensor, site: Site, scale: float) -> Tensor:
        if not self.biased and self.norm == "none" and self.score_scale == "none":
            return q
        x = q.float()
        if self.biased:
            x = x + self._held(self.query_bias, site, x)
        if self.norm == "key":
            x = x / scale
        if self.norm == "cosine":
            x = F.normalize(x, dim=-1) * (4.0 * math.log(self.train_length / 2) / scale)
        if self.score_scale != "none":
            x = x * self._factors(site, x.device)
        return x.to(q.dtype)

    def _keys(self, k: Tensor, site: Site) -> Tensor:
        if not self.biased and self.norm == "none":
            return k
        x = k.float()
        if self.biased:
            x = x + self._held(self.key_bias, site, x)
        if self.norm != "none":
            x = F.normalize(x, dim=-1)
        return x.to(k.dtype)

    def _held(self, bias: Tensor, site: Site, x: Tensor) -> Tensor:
        """bias [H d] -> [h,1,d] fp32 of the heads at hand."""
        return bias.view(-1, 1, x.shape[-1])[site.held].float()

    def _factors(self, site: Site, device: torch.device) -> Tensor:
        """f_i, [A,1] or [h,A,1] fp32."""
        tokens = torch.arange(site.length, device=device)[site.tokens]
        seen = (tokens + 1).clamp(max=self.window or site.length).clamp(min=2)
        logs = seen.double().log()[:, None]
        if self.score_scale == "log_n":
            unit = self.train_length / (2 if self.norm == "cosine" else 1)
            return (logs / math.log(unit)).float()
        return self.score_factor[site.held, None, None].float() * logs.float()


class Dropped(NoPosition):
    """No encoding, in place of one that training drops.

    It adds nothing to the input, in which every parameter of the dropped one has a part: they get
    a gradient of zero. Without one, ZeRO-3 would clip by their last gradient, and apply it again.
    """

    def __init__(self, trained: Position) -> None:
        super().__init__(trained.shape)
        # registered here too, or ZeRO-3 would not gather them for this module
        for number, parameter in enumerate(trained.parameters()):
            self.register_parameter(f"dropped_{number}", parameter)

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D] -> the same."""
        for parameter in self.parameters():
            x = x + 0.0 * parameter.sum().to(x.dtype)
        return x


def attention_mask(model: ModelConfig, heads: range, training: bool) -> Pairwise | None:
    """What queries see besides what causality and the window allow, of these global heads."""
    size = model.mask_tokens
    if size is None or (model.attention_mask == "shifted_groups" and not training):
        return None
    if model.attention_mask == "blockwise":
        return partial(blockwise, block=size)
    return partial(shifted_groups, heads=heads, all_heads=model.heads, group=size)


def check_position(config: Config, position: Position) -> None:
    """Refuse to leave out, in layers or from a step on, an encoding that does not act in attention.

    Raises:
        ConfigError: the encoding does not, or not only, act in attention.
    """
    model, name = config.model, config.position["name"]
    hooks = (name for name in vars(Position) if not name.startswith("_"))
    acts = any(position.has(name) for name in hooks if name not in _ELSEWHERE)
    for key, value in (
        ("no_position_every", model.no_position_every),
        ("drop_position_after", model.drop_position_after),
    ):
        if value is None:
            continue
        if not acts:
            raise ConfigError(
                f"model.{key}={value} has no effect with position={name}, which does nothing in "
                "attention that could be left out; use null, or an encoding that acts there"
            )
        if key == "drop_position_after" and position.has("embed"):
            raise ConfigError(
                f"model.{key}={value} does not fit position={name}: it also changes the input, and "
                "only what acts in attention is left out; use null, or another encoding"
            )
