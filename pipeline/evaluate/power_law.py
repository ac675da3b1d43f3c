"""The power law of context, loss(c) = (alpha / c)^beta + gamma (Xiong et al. 2023, 2309.16039).

Its claim is about contexts that the model was trained with, so only those up to the train length
are fitted: beyond it, the curve is what an encoding is tested for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_LENGTHS = 4  # one more than there are parameters
EXPONENTS = (0.01, 10.0)  # beta; at the ends the curve is a logarithm or a step
_ROUNDS, _GRID = 12, 65


@dataclass(frozen=True)
class PowerLaw:
    """A fit; `alpha` in tokens, `gamma` and the root mean square `residual` in nats per token."""

    alpha: float
    beta: float
    gamma: float
    residual: float
    lengths: int


def fit_power_law(losses: Mapping[int, float], train_length: int) -> PowerLaw | str:
    """Least squares over the lengths up to `train_length`, or the reason why there is no fit.

    For a given beta the curve is a line in c^-beta; beta is searched on a grid that is narrowed
    around its best point.

    Args:
        losses: suffix loss in nats per token by length.
        train_length: tokens in a training sequence.
    """
    lengths = np.array(sorted(c for c in losses if c <= train_length), dtype=np.float64)
    if len(lengths) < LEAST_LENGTHS:
        return (
            f"not fitted: {len(lengths)} of the lengths tested lie within the train length of "
            f"{train_length}, and three parameters need {LEAST_LENGTHS}. Test shorter eval_lengths"
        )
    nats = np.array([losses[int(c)] for c in lengths])
    low, high = np.log(EXPONENTS)
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        errors = [_line(lengths, nats, float(np.exp(point)))[2] for point in grid]
        best = int(np.argmin(errors))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    beta = float(np.exp(grid[best]))
    slope, gamma, error = _line(lengths, nats, beta)
    if slope <= 0.0:
        return "not fitted: the loss does not fall with context within the train length"
    if not 1.001 * EXPONENTS[0] < beta < EXPONENTS[1] / 1.001:
        return (
            f"not fitted: the best beta lies outside {EXPONENTS[0]} to {EXPONENTS[1]}, so these "
            "lengths show no power law"
        )
    return PowerLaw(slope ** (1.0 / beta), beta, gamma, error, len(lengths))


def _line(
    lengths: npt.NDArray[np.float64], nats: npt.NDArray[np.float64], beta: float
) -> tuple[float, float, float]:
    """Slope, intercept and root mean square residual of nats over (c / shortest)^-beta, the slope
    in units of c^-beta."""
    x = (lengths / lengths[0]) ** -beta
    centred = x - x.mean()
    slope = float(centred @ nats / (centred @ centred))
    gamma = float(nats.mean() - slope * x.mean())
    residual = nats - gamma - slope * x
    return slope * float(lengths[0]) ** beta, gamma, float(np.sqrt((residual**2).mean()))
