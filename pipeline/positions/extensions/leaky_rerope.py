"""Leaky ReRoPE: distances of a trained rotary encoding grow k times slower from a window on:
i - j -> w + (i - j - w)/k where i - j >= w.

Su 2023, kexue.fm/archives/9708; k = 16 and a window of 512 of 4096 tokens as in the code
bojone/rerope. From the window on q stands at position w + (i - w)/k and k at j/k.
"""

from typing import Any

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import share_of
from pipeline.positions.rerope import from_window, placed, rotary_refusal


class LeakyExtension(Extension):
    """Slower distances beyond the window."""

    about = ExtensionFacts(
        source="Su 2023, kexue.fm/archives/9708",
        formula="i - j -> w + (i-j-w)/factor where i-j >= w, w = window_share train_length",
        fits="rotary encodings",
        changes={"attention_paths": ("tile",)},
        same_as_trained={"factor": 1.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs rotations."""
        return rotary_refusal(position)

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The factor that makes the trained distances suffice, with the usual window."""
        return {"factor": (times - 0.125) / (1.0 - 0.125)}

    def configure(self, *, window_share: float = 0.125, factor: float = 16.0) -> None:  # type: ignore[override]
        """`window_share` of the training length is the window, `factor` is k."""
        length, usual = self.shape.train_length, "the author: 0.125"
        self.cap = share_of("extension.window_share", window_share, length, usual)
        if not 1.0 <= factor < float("inf"):
            raise ConfigError(
                f"extension.factor={factor}: must be a number from 1 on, by which distances are "
                "divided (the author: 16); without end it is the extension rerope"
            )
        self.factor = factor

    def branches(
        self, q: Tensor, k: Tensor, ids: Tensor, site: Site
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """q, k [B,h,S,d], ids [B,S] or [1,S] -> (q, k) below the window, and from it on."""
        at_q = self.cap + (ids - self.cap).double() / self.factor
        far = placed(self.rotate, q, k, at_q, ids.double() / self.factor, site)
        return self.rotate(q, k, ids, site), far

    def select(self, ids_q: Tensor, ids_k: Tensor) -> Tensor:
        """ids_q [I], ids_k [J] -> [I,J]: 0 where i - j < w, else 1."""
        return from_window(ids_q, ids_k, self.cap)
