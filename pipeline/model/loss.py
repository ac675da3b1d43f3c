"""Next-token loss, -log softmax(W h)[label] in nats, without ever holding all logits.

Logits of `TILE` tokens exist at a time. Where gradients are wanted they are made in the forward
pass, while the logits are there: the derivative of nats by logits is softmax - onehot. Legend: N
tokens, n of one tile, D model width, V vocabulary.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

IGNORED = -100
TILE = 512
_LOG2E = math.log2(math.e)


class Head(nn.Module):
    """The output projection W [V,D] and the loss on it, tile by tile.

    A module of its own, because ZeRO-3 gathers W around a module's forward and backward.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: Tensor, labels: Tensor, choices: Tensor | None = None) -> Tensor:
        """What each label costs and, if asked, how many tokens are at least as likely.

        Args:
            hidden: [N,D].
            labels: [N]; where it is IGNORED the result is 0.
            choices: [C] token ids to rank every label among; it should be one of them.

        Returns:
            Nats [N] fp32. With `choices` [N,3] fp32, without gradients: nats, the label's rank
            among all tokens, and its rank among the choices. Rank 1 is strictly more likely than
            every other; a token as likely as the label counts before it.
        """
        if choices is not None:
            return self._standings(hidden, labels, choices)
        if not torch.is_grad_enabled():
            return self._scored_nats(hidden, labels)
        nats: Tensor = _TiledLoss.apply(hidden, self.weight, labels)
        return nats

    def _scored_nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        nats = torch.zeros(len(labels), device=hidden.device)
        for part, logits in self._scored_logits(hidden, labels):
            nats[part] = F.cross_entropy(logits, labels[part], reduction="none")
        return nats

    @torch.no_grad()
    def _standings(self, hidden: Tensor, labels: Tensor, choices: Tensor) -> Tensor:
        found = torch.zeros(len(labels), 3, device=hidden.device)
        for part, logits in self._scored_logits(hidden, labels):
            found[part, 0] = F.cross_entropy(logits, labels[part], reduction="none")
            own = logits.gather(-1, labels[part, None])
            # "not less" rather than "at least": what is no number counts against the label as well
            reached = ~(logits < own)
            found[part, 1] = reached.sum(-1).float()
            found[part, 2] = reached[:, choices].sum(-1).float()
        return found

    def _scored_logits(self, hidden: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Tile by tile, places [n] and logits [n,V] fp32 of the labels that count, and no more."""
        for part in (labels != IGNORED).nonzero().squeeze(-1).split(TILE):
            yield part, F.linear(hidden[part], self.weight).float()


class _TiledLoss(torch.autograd.Function):
    """The gradients of the sum of all nats are made in forward; backward scales them.

    That is right if every token's nats get the same gradient, as under a sum. A sum hands its
    gradient down as one number, expanded: the stride tells, and nothing is read from the device.
    Any other gradient takes the tiles a second time.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        ones = torch.ones(len(labels), device=hidden.device)
        nats, *sums = _tiles(hidden, weight, labels, ones, ctx.needs_input_grad[1])
        ctx.save_for_backward(hidden, weight, labels, *sums)
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        hidden, weight, labels, d_hidden, d_weight = ctx.saved_tensors
        if len(grad) and grad.stride(0) == 0:
            d_hidden = d_hidden * grad[0]
            d_weight = None if d_weight is None else d_weight * grad[0]
        else:
            wanted = ctx.needs_input_grad[1]
            _, d_hidden, d_weight = _tiles(hidden, weight, labels, grad, wanted)
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None


def _tiles(
    hidden: Tensor, weight: Tensor, labels: Tensor, pull: Tensor, weight_too: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """hidden [N,D], weight [V,D], labels [N], pull [N] fp32, the gradient of each token's nats ->
    nats [N] fp32, gradient of hidden [N,D] and, if `weight_too`, of weight [V,D] fp32."""
    counted = labels != IGNORED
    pull, labels = pull * counted, labels.where(counted, 0)
    nats, d_hidden = torch.empty_like(pull), torch.empty_like(hidden)
    d_weight = torch.zeros_like(weight, dtype=torch.float32) if weight_too else None
    # one buffer for all tiles: fresh memory costs a fifth of the product that fills it
    buffer = hidden.new_empty(min(TILE, len(labels)), len(weight))
    for i in range(0, len(labels), TILE):
        here = slice(i, i + TILE)
        tile, scale = hidden[here], pull[here, None]
        logits = torch.mm(tile, weight.T, out=buffer[: len(tile)]).float()
        nats[here] = _differentiate(logits, labels[here, None])
        slope = logits.to(tile.dtype)
        d_hidden[here] = torch.mm(slope, weight) * scale
        if d_weight is None:
            continue
        scaled = (tile * scale).to(tile.dtype)
        if scaled.dtype == d_weight.dtype:
            d_weight.addmm_(slope.T, scaled)
        else:
            d_weight += slope.T @ scaled
    return nats.masked_fill_(~counted, 0.0), d_hidden, d_weight


def _differentiate(logits: Tensor, labels: Tensor) -> Tensor:
    """logits [n,V] fp32, labels [n,1] -> nats [n]; logits become softmax - onehot, in place."""
    top, chosen = logits.amax(-1, keepdim=True), logits.gather(-1, labels)
    # in base 2, for exp is slow on very negative numbers
    mass = logits.sub_(top).mul_(_LOG2E).exp2_().sum(-1, keepdim=True)
    logits.div_(mass).scatter_add_(-1, labels, torch.full_like(mass, -1.0))
    return (mass.log_() + top - chosen).squeeze(-1)
