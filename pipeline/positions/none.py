"""No position encoding: S_ij = q_i . k_j / sqrt(d), the causal mask alone orders the tokens.

Haviv, Ram, Press, Izsak, Levy 2022, arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466.
"""

from pipeline.positions.base import Facts, Position


class NoPosition(Position):
    """Nothing at the input, nothing in attention."""

    facts = Facts(
        source="Haviv et al. 2022, arXiv 2203.16634",
        formula="S_ij = q_i.k_j/sqrt(d)",
        family="none",
        shift_invariant=True,
        attention_paths=("sdpa", "tile", "flex"),
    )
