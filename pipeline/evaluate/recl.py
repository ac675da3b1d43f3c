"""Relative effective context length (Dai et al. 2019, Transformer-XL, appendix C).

With the nats l_i(c, t) of model i on target t under context c, in a group of models:

    b(c, t) = min_i l_i(c, t)                           the baseline that all must improve on
    T       = the share r of targets with largest b(c, t)
    f_i(c, c') = mean over t in T of min(b(c, t), l_i(c', t))
    g_i(c, c') = (exp f_i(c, c) - exp f_i(c, c')) / exp f_i(c, c)

From the shortest context on, c moves to the next longer one c' while g_i(c, c') >= 0.01; where it
stops is the RECL. The paper steps by a fixed Delta; here the next context is the next length that
was measured. The suffix protocol shows target k of K, at length c, c - K + k tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Nats = npt.NDArray[np.float64]

LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Reach:
    """How far a model still gains from context.

    `open` if nothing stopped it: it gained up to the longest length that it was measured at, and
    its RECL is at least `length`.
    """

    length: int
    open: bool


def effective_lengths(
    nats: Mapping[str, Mapping[int, Nats]], lengths: Sequence[int], share: float
) -> dict[str, Reach]:
    """The RECL of each model of a group.

    Args:
        nats: of each model and each length that it is defined at, [targets] in the same order;
            every model is defined at the shortest of `lengths`.
        lengths: the contexts measured, ascending; those at which no model is defined do not count.
        share: r, in (0, 1]: the targets that are hardest on little context.
    """
    hard = {}
    lengths = [length for length in lengths if any(length in own for own in nats.values())]
    for length in lengths:
        baseline = np.min([own[length] for own in nats.values() if length in own], axis=0)
        count = max(1, round(share * len(baseline)))
        targets = np.argsort(-baseline, kind="stable")[:count]
        hard[length] = (targets, baseline[targets])
    return {name: _reach(own, lengths, hard) for name, own in nats.items()}


def _reach(
    own: Mapping[int, Nats],
    lengths: Sequence[int],
    hard: Mapping[int, tuple[npt.NDArray[np.int64], Nats]],
) -> Reach:
    for short, long in pairwise(lengths):
        if long not in own:
            return Reach(short, open=True)
        targets, baseline = hard[short]
        improved = np.minimum(baseline, own[long][targets]).mean()
        # (exp f - exp f') / exp f
        if -np.expm1(improved - baseline.mean()) < LEAST_GAIN:
            return Reach(short, open=False)
    return Reach(lengths[-1], open=True)
