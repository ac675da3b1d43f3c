"""Masks by position: which keys j a query i sees, beside that none sees what is after it.

blockwise: floor(i/B) - floor(j/B) <= 1; Sun et al. 2023, arXiv 2212.10554, section 3.3
shifted_groups: floor((i + o_h)/G) = floor((j + o_h)/G); Chen et al. 2024 (LongLoRA), arXiv
    2309.12307, section 3.2
lambda_shaped: j < g or i - j < w; Han et al. 2024 (LM-Infinite), arXiv 2308.16137

o_h is 0 for the first half of all heads and G/2 for the others. The authors of shifted groups roll
the sequence around, which shows its end to its beginning; here the first half group of shifted
heads stands alone. Ids are integers. Legend: h heads at hand, I queries, J keys.
"""

import torch
from torch import Tensor


def blockwise(ids_q: Tensor, ids_k: Tensor, block: int) -> Tensor:
    """ids_q [I], ids_k [J] -> [1,I,J]: a query sees its own block
    of B tokens and the one before."""
    near = ids_q[:, None] // block - ids_k // block <= 1
    return (near & _past(ids_q, ids_k))[None]


def shifted_groups(
    ids_q: Tensor, ids_k: Tensor, heads: range, all_heads: int, group: int
) -> Tensor:
    """ids_q [I], ids_k [J], global indices of the heads at hand, of H in all -> [h,I,J]: a query
    sees its own group of G tokens."""
    own = torch.arange(heads.start, heads.stop, device=ids_q.device)
    shift = (own >= all_heads // 2).long()[:, None] * (group // 2)
    group_q, group_k = (ids_q + shift) // group, (ids_k + shift) // group
    return (group_q[:, :, None] == group_k[:, None, :]) & _past(ids_q, ids_k)


def lambda_shaped(ids_q: Tensor, ids_k: Tensor, window: int, first: int) -> Tensor:
    """ids_q [I], ids_k [J] -> [1,I,J]: a query sees the `first` g tokens of the sequence, and of
    those before it the last w, itself included."""
    seen = (ids_k < first) | (ids_q[:, None] - ids_k < window)
    return (seen & _past(ids_q, ids_k))[None]


def _past(ids_q: Tensor, ids_k: Tensor) -> Tensor:
    return ids_k <= ids_q[:, None]
