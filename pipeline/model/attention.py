"""Causal attention out = softmax(q k^T / sqrt(d) + bias) v, in memory linear in the length.

Two paths, both exact: `sdpa`, torch's fused kernel, when the encoding adds nothing to the scores;
`tile` (`pipeline.model.tile`), when it adds a bias that is a function of distance, given as a
table. Never an S x S mask. (torch itself leaves its fused kernel for a quadratic one at odd head
widths: keep the head width a multiple of 8.)
"""

import torch.nn.functional as F
from torch import Tensor

from pipeline.model.tile import tiled_attention


def attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor | None = None) -> Tensor:
    """Causal attention over whole sequences.

    Args:
        q, k, v: [B,h,S,d].
        table: [h,S] fp32 bias by distance i - j, added after the 1/sqrt(d) scale, or None.

    Returns:
        [B,h,S,d], in the precision of `v`.
    """
    if table is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return tiled_attention(q, k, v, table)
