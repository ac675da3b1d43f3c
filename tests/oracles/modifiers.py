"""What changes attention under any encoding, from the papers, in loops and fp64; nothing of the
project is used. `Modified.score` wraps the score of an encoding, which divides products by sqrt(d).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.oracles.attention import Score, attention


@dataclass(frozen=True)
class Modified:
    """The settings of one layer, its learned numbers as fp64 leaves, and what it is part of."""

    heads: int
    train_length: int
    score_scale: str = "none"
    qk_norm: str = "none"
    attention_mask: str = "none"
    mask_tokens: int = 0
    window: int | None = None
    query_bias: Tensor | None = None  # [H,d]
    key_bias: Tensor | None = None
    score_factor: Tensor | None = None  # [H]

    def factor(self, head: int, i: int) -> Tensor | float:
        """What the products of query i, counted from 0, are multiplied with."""
        visible = max(min(i + 1, self.window or i + 1), 2)
        if self.score_scale == "log_n" and self.qk_norm != "cosine":
            return math.log(visible, self.train_length)
        if self.score_scale == "ssmax":
            assert self.score_factor is not None
            return self.score_factor[head] * math.log(visible)
        return 1.0

    def seen(self, head: int, i: int, j: int) -> bool:
        """Whether query i sees key j, not after it."""
        if self.window is not None and i - j >= self.window:
            return False
        size = self.mask_tokens
        if self.attention_mask == "blockwise":
            # two blocks back is the first that is out of sight
            return j >= (i - i % size) - size
        if self.attention_mask == "shifted_groups":
            first = size if head < self.heads // 2 else size // 2
            starts = [0, *range(first, i + 1, size)]
            return j >= starts[-1]
        return True

    def score(self, score: Score) -> Score:
        """The score of an encoding -> with these modifiers."""

        def modified(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
            if not self.seen(head, i, j):
                return torch.tensor(-math.inf, dtype=torch.float64)
            if self.query_bias is not None and self.key_bias is not None:
                q, k = q + self.query_bias[head], k + self.key_bias[head]
            if self.qk_norm != "none":
                k = k / k.pow(2).sum().sqrt()
                q = q * math.sqrt(len(q))
            if self.qk_norm == "cosine":
                # the post's two choices: half the training length, or as many as are seen
                grows = self.score_scale == "log_n"
                seen = max(min(i + 1, self.window or i + 1), 2) if grows else self.train_length / 2
                strength = 4.0 * math.log(seen)
                q = q * strength / (q / math.sqrt(len(q))).pow(2).sum().sqrt()
            return score(q * self.factor(head, i), k, head, i, j)

        return modified


def layer(x: Tensor, weights: dict[str, Tensor], heads: int, score: Score) -> Tensor:
    """x [B,S,D] -> attention of its norm, [B,S,D]: queries, keys and values of head after head."""
    batch, length, width = x.shape
    normed = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weights["gain"]
    projected = (normed @ weights["qkv"].T).view(batch, length, heads, 3, width // heads)
    q, k, v = projected.permute(3, 0, 2, 1, 4)
    mixed = attention(q, k, v, score)
    return mixed.transpose(1, 2).reshape(batch, length, width) @ weights["out"].T
