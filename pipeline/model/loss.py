"""Next-token loss, -log softmax(W h)[label] in nats, without ever holding all logits.

Logits of `TILE` tokens exist at a time, forward and backward (each tile is recomputed). Legend:
N tokens, D model width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

IGNORED = -100
TILE = 1024


class Head(nn.Module):
    """The output projection W [V,D] and the loss on it, tile by tile.

    A module of its own, because ZeRO-3 gathers W around a module's forward and backward.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [N,D] -> logits [N,V] fp32."""
        return F.linear(hidden, self.weight).float()

    def _nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(hidden), labels, ignore_index=IGNORED, reduction="none")

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """hidden [N,D], labels [N] -> nats of each label [N] fp32; 0 where the label is IGNORED."""
        if not torch.is_grad_enabled():
            return self._scored_nats(hidden, labels)
        if len(labels) <= TILE:
            return self._nats(hidden, labels)
        tiles = zip(hidden.split(TILE), labels.split(TILE), strict=True)
        return torch.cat([checkpoint(self._nats, *tile, use_reentrant=False) for tile in tiles])

    def _scored_nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Without gradients, logits are made for the labels that count only."""
        scored = (labels != IGNORED).nonzero().squeeze(-1)
        nats = torch.zeros(len(labels), device=hidden.device)
        for part in scored.split(TILE):
            nats[part] = self._nats(hidden[part], labels[part])
        return nats
