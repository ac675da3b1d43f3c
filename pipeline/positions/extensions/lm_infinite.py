"""LM-Infinite: a trained rotary encoding at the distance min(i - j, w), under a Lambda-shaped mask:
query i sees key j where j < g or i - j < w.

Han et al. 2024, arXiv 2308.16137: w is the training length, g 10 to 100 tokens. So the first g
tokens stand at distance w from whatever is farther on. The authors' optional reading of a few keys
between, in some layers, is not part of this.
"""

from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.positions.base import Position, Site
from pipeline.positions.extension import ExtensionFacts
from pipeline.positions.extensions.rerope import RectifiedExtension
from pipeline.positions.facts import MOST_TOKENS
from pipeline.positions.masks import lambda_shaped


class LmInfiniteExtension(RectifiedExtension):
    """The first tokens and the last ones, no farther than trained."""

    about = ExtensionFacts(
        source="Han et al. 2024, arXiv 2308.16137",
        formula="i - j -> min(i-j, w), seen where j < global_tokens or i-j < w, "
        "w = window_share train_length",
        fits="rotary encodings without a mask",
        changes={"attention_paths": ("tile",), "shift_invariant": False},
        counts_tokens=True,
        same_as_trained={"window_share": 1e9},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs rotations, and puts a mask where there is none."""
        if position.has("allowed"):
            return "the encoding has a mask of its own; use it with rope"
        return super().refusal(position)

    def configure(self, *, window_share: float = 1.0, global_tokens: int = 10) -> None:  # type: ignore[override]
        """`window_share` of the training length is w, `global_tokens` are g."""
        super().configure(window_share=window_share)
        if not 0 <= global_tokens <= MOST_TOKENS or global_tokens != int(global_tokens):
            raise ConfigError(
                f"extension.global_tokens={global_tokens}: must be a whole number from 0 to "
                f"{MOST_TOKENS} (the authors: 10 to 100)"
            )
        self.global_tokens = int(global_tokens)

    def allowed(self, ids_q: Tensor, ids_k: Tensor, site: Site) -> Tensor:
        """ids_q [I], ids_k [J] -> [1,I,J]."""
        return lambda_shaped(ids_q, ids_k, self.cap, self.global_tokens)
