"""Complex-order embeddings: the input of token w at position p is
h0 = W [x cos(p o_w) | x sin(p o_w)], x = sqrt(D) E[w], with frequencies o_w [D] that are learned.

Wang, Zhao, Lioma, Li, Zhang, Simonsen 2020, arXiv 1912.12333: f(w, p) = r_w exp(i (p o_w + t_w)),
without the initial phases t, which made the paper's results worse; the amplitude r is the token
embedding itself. Frequencies start at 10000^(-2 floor(c/2)/D), channel c, as in the authors' code,
whose positions run backwards in its text classifier, and forwards here. `sharing` = word: one
row of frequencies for all tokens; none: one for each token, as many parameters as E.

The vector is 2D wide; W [D,2D], which the paper does not have, takes it back to D. It starts as
[I, 0], so that position 0 gives x. The phase p o_w is fp64: fp32 loses it at large p.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape

SHARINGS = ("word", "none")


class ComplexPosition(Position):
    """The token embedding as an amplitude, the position as a phase of learned frequency."""

    facts = Facts(
        source="Wang et al. 2020, arXiv 1912.12333",
        formula="h0_p = W [x cos(p o_w) | x sin(p o_w)], x = sqrt(D) E[w], o_w learned",
        family="input embedding",
        shift_invariant=False,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="2 * width**2 + width * (1 if sharing == 'word' else vocab)",
        real_positions=True,
    )

    def __init__(self, shape: Shape, *, sharing: str = "word") -> None:
        super().__init__(shape)
        if sharing not in SHARINGS:
            raise ConfigError(
                f"position.sharing={sharing!r}: must be one of {', '.join(SHARINGS)}; word has "
                "one row of frequencies for all tokens, none one for each"
            )
        self.shared, width = sharing == "word", shape.width
        start = 10000.0 ** (-2.0 * (torch.arange(width) // 2).double() / width)
        rows = 1 if self.shared else shape.vocab
        self.frequencies = nn.Parameter(start.float().repeat(rows, 1))
        self.projection = nn.Parameter(torch.eye(width, 2 * width))

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D], ids [B,T] or [1,T], tokens [B,T] -> W [x cos | x sin] [B,T,D]."""
        speeds = self.frequencies[0] if self.shared else self.frequencies[tokens]
        phases = ids[..., None].double() * speeds.double()
        parts = x * phases.cos().to(x.dtype), x * phases.sin().to(x.dtype)
        return nn.functional.linear(torch.cat(parts, dim=-1), self.projection.to(x.dtype))
