"""Tells a spike of the training loss from its usual ups and downs."""

import statistics
from collections import deque
from collections.abc import Iterable

WINDOW, LEAST, DEVIATIONS = 128, 16, 7.0


class SpikeDetector:
    """A loss is a spike if it lies `DEVIATIONS` standard deviations above the mean of the last
    `WINDOW` losses before it; the first `LEAST` losses are none.

    OLMo 2 (arXiv 2501.00656) counts such steps, over 1000 losses, as its spike score. Spikes enter
    the window like all losses. Nothing is skipped: an instability must show.
    """

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self._losses = deque(losses, maxlen=WINDOW)

    @property
    def losses(self) -> list[float]:
        """The losses that the next one is judged by, oldest first."""
        return list(self._losses)

    def see(self, loss: float) -> tuple[float, float] | None:
        """Take the next loss; of a spike, the mean and the standard deviation it stands out of."""
        before = self.losses
        self._losses.append(loss)
        if len(before) < LEAST:
            return None
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        return (mean, deviation) if loss > mean + DEVIATIONS * deviation else None
