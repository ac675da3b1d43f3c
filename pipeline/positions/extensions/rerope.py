"""ReRoPE at test time: q_i and k_j of a trained rotary encoding meet at the distance min(i - j, w).

Su 2023, kexue.fm/archives/9708. Below the window nothing changes; from it on q stands at position
w and k at 0. The code bojone/rerope also multiplies q by max(1, log_L(i + 1)): that is the
extension log_n. The post takes windows of a quarter to a half of the training length.
"""

import torch
from torch import Tensor

from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import share_of
from pipeline.positions.rerope import from_window, placed, rotary_refusal


class RectifiedExtension(Extension):
    """No distance beyond the window."""

    about = ExtensionFacts(
        source="Su 2023, kexue.fm/archives/9708",
        formula="i - j -> min(i-j, w), w = window_share train_length",
        fits="rotary encodings",
        changes={"attention_paths": ("tile",)},
        same_as_trained={"window_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs rotations."""
        return rotary_refusal(position)

    def configure(self, *, window_share: float = 0.5) -> None:  # type: ignore[override]
        """`window_share` of the training length is the window."""
        length, usual = self.shape.train_length, "the author: 0.25 to 0.5"
        self.cap = share_of("extension.window_share", window_share, length, usual)

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> (q, k) below the window, and from it on."""
        ends = torch.full_like(ids, self.cap), torch.zeros_like(ids)
        return self.rotate(q, k, ids, site), placed(self.rotate, q, k, *ends, site)

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J]: 0 where i - j < w, else 1."""
        return from_window(ids_q, ids_k, self.cap)
