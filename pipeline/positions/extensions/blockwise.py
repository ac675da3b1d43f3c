"""Blockwise causal attention (BCA): query i sees key j where floor(i/B) - floor(j/B) <= 1, its own
block of B tokens and the one before.

Sun et al. 2023 (xPos, LeX), arXiv 2212.10554, section 3.3: B is half the training length, so that
no distance is longer than trained.
"""

from torch import Tensor

from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import share_of
from pipeline.positions.masks import blockwise


class BlockwiseExtension(Extension):
    """Two blocks of tokens."""

    about = ExtensionFacts(
        source="Sun et al. 2023, arXiv 2212.10554",
        formula="seen where floor(i/B) - floor(j/B) <= 1, B = block_share train_length",
        fits="all encodings without a mask",
        changes={"attention_paths": ("tile",), "shift_invariant": False},
        counts_tokens=True,
        same_as_trained={"block_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It puts a mask where there is none."""
        return "the encoding has a mask of its own" if position.has("allowed") else None

    def configure(self, *, block_share: float = 0.5) -> None:  # type: ignore[override]
        """`block_share` of the training length is a block, B."""
        length, usual = self.shape.train_length, "the authors: 0.5"
        self.block_tokens = share_of("extension.block_share", block_share, length, usual)

    def allowed(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> [1,I,J]."""
        return blockwise(ids_q, ids_k, self.block_tokens)
