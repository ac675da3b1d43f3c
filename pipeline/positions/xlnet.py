"""XLNet: S_ij = ((q_i + u) . k_j + (q_i + v) . W_R R[i - j]) / sqrt(d), as Transformer-XL, with
u, v [layers,H,d] of each layer's own.

Yang, Dai, Yang, Carbonell, Salakhutdinov, Le 2019, arXiv 1906.08237: Transformer-XL's encoding, in
the released models with untied biases (`untie_r`). Its code lists the sinusoids of the distances
from S down, one more at the far end than Transformer-XL's S - 1 .. 0, and its shift drops a column
more: mixing the two would be off by one token, and by themselves both read R[i - j]. The
encoding of segments, which says whether two tokens are of the same sentence of a pair, is for
fine-tuning tasks, and the permutation of tokens is an objective: neither is here.
"""

from pipeline.positions.base import Facts
from pipeline.positions.transformer_xl import TransformerXlPosition


class XlnetPosition(TransformerXlPosition):
    """Transformer-XL's encoding with the biases of each layer its own."""

    facts = Facts(
        source="Yang et al. 2019, arXiv 1906.08237",
        formula="S_ij = ((q_i+u).k_j + (q_i+v).W_R R[i-j])/sqrt(d), u, v of each layer",
        family="relative vectors",
        shift_invariant=True,
        attention_paths=("tile",),
        extra_parameters="layers * width * "
        "(2 + (width if relative_width == 'model' else width // heads))",
    )
    untied = True
