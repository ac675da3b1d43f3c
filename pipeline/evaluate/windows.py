"""Which tokens each protocol shows the model, and which of them it scores.

A document of n tokens x_0 .. x_{n-1} has targets x_1 .. x_{n-1}; a window [start, stop) shows
x_start .. x_{stop-1} and scores its last `scored` targets, x_{stop-scored+1} .. x_stop. All
protocols score targets that end at the document's last token, the *span*; so every length and
every encoding is judged on the same tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Tokens [start, stop) of document `document`; the last `scored` of their targets count."""

    document: int
    start: int
    stop: int
    scored: int

    @property
    def length(self) -> int:
        """Tokens shown."""
        return self.stop - self.start


def suffix(sizes: Sequence[int], length: int, targets: int) -> list[Window]:
    """One window of `length` tokens per document, scoring the document's last `targets` targets.

    Only the context grows with `length`: target t of the suffix sees length - targets + t tokens,
    t = 1 .. targets.

    Args:
        sizes: tokens in each document.
        length: tokens shown; at least `targets`.
        targets: targets scored.
    """
    return [Window(d, n - 1 - length, n - 1, targets) for d, n in enumerate(sizes)]


def restricted(sizes: Sequence[int], length: int, stride: int, targets: int) -> list[Window]:
    """The last `targets` targets, each scored once by a model that sees `length` tokens at most.

    Windows reach back before the scored targets, so each target sees length - stride + 1 to
    `length` tokens: the window control. Documents must have length + targets + 1 tokens.
    """
    windows = []
    for document, n in enumerate(sizes):
        stop = n - 1 - targets
        while stop < n - 1:
            scored = min(stride, n - 1 - stop)
            stop += scored
            windows.append(Window(document, stop - length, stop, scored))
    return windows


def sliding(sizes: Sequence[int], length: int, stride: int, targets: int) -> list[Window]:
    """Windows of `length` tokens in steps of `stride` within the last `targets` targets' tokens.

    The first window of a document scores all its targets, each later one the `stride` new ones
    (Press et al. 2022, appendix B; Chen et al. 2023, arXiv 2306.15595, section 3), the last one
    what remains; every target is scored once.
    """
    windows = []
    for document, n in enumerate(sizes):
        start, end = n - 1 - targets, n - 1
        stop = min(start + length, end)
        windows.append(Window(document, start, stop, stop - start))
        while stop < end:
            scored = min(stride, end - stop)
            stop += scored
            windows.append(Window(document, max(start, stop - length), stop, scored))
    return windows


def non_overlapping(sizes: Sequence[int], length: int, targets: int) -> list[Window]:
    """The last `targets` targets cut into pieces of `length` tokens, each scored whole, no context
    carried over; the last piece of a document is what remains."""
    windows = []
    for document, n in enumerate(sizes):
        start, end = n - 1 - targets, n - 1
        while start < end:
            stop = min(start + length, end)
            windows.append(Window(document, start, stop, stop - start))
            start = stop
    return windows
