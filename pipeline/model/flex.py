"""The flex path: torch's FlexAttention, compiled, for biases by distance and windows on CUDA.

It has no backward pass on CPU (pytorch/pytorch 169224), and its gradient of a captured table is
summed in no fixed order (pytorch/pytorch 137452): the last digits of a table's gradient may differ
between two runs.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from pipeline.positions.scores import Scores


@cache
def compiled() -> Any:
    """FlexAttention, compiled when first called; its own cache is by shape."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def flex(scores: Scores, v: Tensor, kernel: Any) -> Tensor:
    """v [B,h,S,d] -> [B,h,S,d]; `kernel` is FlexAttention, compiled or not."""
    from torch.nn.attention.flex_attention import create_block_mask

    ((q, k),), table, window, length = scores.pairs, scores.table, scores.window, v.shape[2]

    def allowed(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        near = j <= i
        return near if window is None else near & (i - j < window)

    def biased(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if table is None:
            return score
        return score + table[head, (i - j).clamp(0, table.shape[1] - 1)]

    mask = create_block_mask(allowed, None, None, length, length, device=str(v.device))
    out: Tensor = kernel(q, k, v, score_mod=biased, block_mask=mask, scale=scores.scale)
    return out
