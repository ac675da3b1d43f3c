"""The error of a mean of nats as rows state it; without torch, for all who check rows."""

import math

import numpy as np
import numpy.typing as npt

Nats = npt.NDArray[np.float64]


def standard_error(means: Nats) -> float | None:
    """That of the mean over documents, of each document's mean nats; None of fewer than two."""
    if len(means) < 2:
        return None
    return float(means.std(ddof=1) / math.sqrt(len(means)))
