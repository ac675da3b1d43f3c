"""Dual chunk attention (DCA, ChunkLlama): k_j of a trained rotary encoding stands at j mod s, in
chunks of s tokens, and q_i at

i mod s                   for keys of its own chunk
min(s + i mod s, c - 1)   for keys of the chunk before
c - 1                     for keys farther back

An et al. 2024, arXiv 2402.17463, sections 3.1 to 3.3. c = 3L/4 and s = 5L/8 are the proportions of
one version of the code HKUNLP/ChunkLlama, whose others have s = 11L/16; it stops at c where the
paper, and this, stops at c - 1. Keys of the
chunk before are met at i - j up to a distance of c - s at least.
"""

import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import share_of
from pipeline.positions.rerope import rotary_refusal


class DualChunkExtension(Extension):
    """Distances within chunks, between neighbouring chunks, and between all others."""

    about = ExtensionFacts(
        source="An et al. 2024, arXiv 2402.17463",
        formula="i - j -> {i mod s, min(s + i mod s, c-1), c-1} - j mod s, for keys of the same "
        "chunk, the one before, all others; s, c = chunk_share, window_share train_length",
        fits="rotary encodings",
        changes={"attention_paths": ("tile",), "shift_invariant": False},
        same_as_trained={"chunk_share": 1e9, "window_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs rotations."""
        return rotary_refusal(position)

    def configure(self, *, chunk_share: float = 0.625, window_share: float = 0.75) -> None:  # type: ignore[override]
        """Shares of the training length: of a chunk, s, and of all distances used, c."""
        length = self.shape.train_length
        self.chunk = share_of(
            "extension.chunk_share", chunk_share, length, "the authors' code: 0.625"
        )
        self.distances = share_of(
            "extension.window_share", window_share, length, "the authors' code: 0.75"
        )
        if self.distances < self.chunk:
            raise ConfigError(
                f"extension.window_share={window_share}: {self.distances} tokens, less than the "
                f"chunk of {self.chunk} that extension.chunk_share={chunk_share} gives; must be at "
                "least as much (the authors' code: 0.75 and 0.625)"
            )

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> (q, k) within a chunk, from the one before, and
        from farther back."""
        inside, last = ids % self.chunk, self.distances - 1
        own, keys = self.rotate(q, k, inside, site)
        after = (inside + self.chunk).clamp(max=last)
        before, _ = self.rotate(q, k, after, site)
        far, _ = self.rotate(q, k, torch.full_like(ids, last), site)
        return (own, keys), (before, keys), (far, keys)

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J]: chunks back, 2 standing for all more."""
        return (ids_q[:, None] // self.chunk - ids_k // self.chunk).clamp(0, 2)
