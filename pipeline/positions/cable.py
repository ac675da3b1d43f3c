"""CABLE: S_ij = q_i . k_j / sqrt(d) + c_i - c_j, c = cumsum(-softplus(w_h . x + b_h)), x the stream
that queries and keys are made of.

Veisi, Amirzadeh, Mansourian 2025, arXiv 2503.08067. softplus(z) = -log sigmoid(-z): FoX with w and
b of the other sign. Both start the same in their authors' code, w ~ N(0, 0.02) and b = 0.
That code does not divide by sqrt(d); it is kept here, so that encodings differ in the bias alone.
"""

from torch import Tensor

from pipeline.positions.base import Facts, Site
from pipeline.positions.fox import FoxPosition


class CablePosition(FoxPosition):
    """Context-aware biases: each token, per head, adds a length of its own to distances."""

    facts = Facts(
        source="Veisi et al. 2025, arXiv 2503.08067",
        formula="S_ij = q_i.k_j/sqrt(d) - sum_{l=j+1..i} softplus(w_h.x_l + b_h)",
        family="contextual",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="layers * heads * (width + 1)",
        real_positions=True,
    )

    def decay(self, logits: Tensor, site: Site) -> Tensor:
        """Logits of the whole sequence, [B,h,S] -> c [B,h,S] fp64."""
        return super().decay(-logits, site)
