"""Self-Extend: distances of a trained rotary encoding are those of groups of G tokens from a window
on: i - j -> floor(i/G) - floor(j/G) + W - floor(W/G) where i - j >= W.

Jin et al. 2024, arXiv 2401.01325; the authors take G = 4 .. 16 and windows of 512 and 1024 of 4096
tokens, and in one place of their code W/G where the paper has its floor. The trained distances
suffice for about (L - W) G + W tokens.
"""

import math
from typing import Any

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import MOST_TOKENS, share_of
from pipeline.positions.rerope import from_window, placed, rotary_refusal


class SelfExtension(Extension):
    """Exact distances to neighbours, grouped ones beyond."""

    about = ExtensionFacts(
        source="Jin et al. 2024, arXiv 2401.01325",
        formula="i - j -> floor(i/G) - floor(j/G) + W - floor(W/G) where i-j >= W, "
        "W = window_share train_length, G = group",
        fits="rotary encodings",
        changes={"attention_paths": ("tile",), "shift_invariant": False},
        same_as_trained={"group": 1},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs rotations."""
        return rotary_refusal(position)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """Groups that make the trained distances suffice, with the usual window."""
        return {"group": math.ceil((times - 0.25) / (1.0 - 0.25))}

    def configure(self, *, window_share: float = 0.25, group: int = 8) -> None:  # type: ignore[override]
        """`window_share` of the training length is the window of neighbours, W; `group` is G."""
        length, usual = self.shape.train_length, "the authors: 0.125 to 0.25"
        self.neighbours = share_of("extension.window_share", window_share, length, usual)
        if not 1 <= group <= MOST_TOKENS or group != int(group):
            raise ConfigError(
                f"extension.group={group}: must be a whole number of tokens from 1 on (the "
                "authors: 4 to 16)"
            )
        self.group = int(group)

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> (q, k) of neighbours, and of groups."""
        groups = ids // self.group
        at_q = groups + self.neighbours - self.neighbours // self.group
        grouped = placed(self.rotate, q, k, at_q, groups, site)
        return self.rotate(q, k, ids, site), grouped

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J]: 0 where i - j < W, else 1."""
        return from_window(ids_q, ids_k, self.neighbours)
