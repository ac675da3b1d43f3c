"""Adjusted base: the trained rotation with another base, w_t = base^(-2t/d).

Xiong et al. 2023, arXiv 2309.16039, section 2 (ABF): 500000 for 10000, followed by training at the
new length. What it can reach depends on how many dimensions turned at least once in training,
2 ceil(d/2 log_b(L / 2 pi)) of d (Liu, Yan, Zhang, An, Qiu, Lin 2023, arXiv 2310.05209): the others
have only been seen in part.
"""

from pipeline.positions.base import Position
from pipeline.positions.extension import Extension, ExtensionFacts
from pipeline.positions.rope import RotaryPosition, check_base, without_speeds


class AdjustedBase(Extension, RotaryPosition):
    """A trained rotation with another base."""

    about = ExtensionFacts(
        source="Xiong et al. 2023, arXiv 2309.16039",
        formula="w_t = base^(-2t/d) with another base",
        fits="rope and the encodings made of it",
        changes={},
        same_as_trained={"base": 10000.0},
    )

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """It needs speeds."""
        return without_speeds(position)

    def configure(self, *, base: float = 500000.0) -> None:  # type: ignore[override]
        """`base`: above 1; of the extended encoding alone."""
        check_base("extension", base)
        self.base = base
