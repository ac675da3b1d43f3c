"""Sliding window at test time: query i sees key j where i - j < w.

Beltagy, Peters, Cohan 2020 (Longformer), arXiv 2004.05150, section 3.1, here without training: the
baseline that whatever claims to read farther than it was trained has to beat. By default w is the
training length, a `window_share` of 1.
"""

from dataclasses import replace

from torch import Tensor

from pipeline.positions.base import Position, Site
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.facts import share_of
from pipeline.positions.scores import Scores


class WindowExtension(Extension):
    """The last tokens only."""

    about = ExtensionFacts(
        source="Beltagy et al. 2020, arXiv 2004.05150",
        formula="seen where i-j < w, w = window_share train_length",
        fits="all encodings",
        changes={},
        same_as_trained={"window_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """Every encoding can be seen through a window."""
        return None

    def configure(self, *, window_share: float = 1.0) -> None:  # type: ignore[override]
        """`window_share` of the training length is w."""
        length, usual = self.shape.train_length, "the training length: 1.0"
        self.seen_tokens = share_of("extension.window_share", window_share, length, usual)

    def adjust(self, scores: Scores, ids: Tensor, site: Site) -> Scores:
        """Those of the trained encoding in a window, no wider than the one that was trained."""
        found = super().adjust(scores, ids, site)
        own = min(found.window or site.length, self.seen_tokens)
        # a fold is made for all keys
        return found if own >= site.length else replace(found, window=own, folded=None)
