"""Progress on standard error: a bar on a terminal, a line now and then in a log."""

import sys
from typing import Any

from tqdm import tqdm


class _Lines:
    """A log in place of a terminal: each state of a bar is a line of its own, so that messages
    between them stand alone and `tail` shows the last ones."""

    def write(self, text: str) -> None:
        if text.strip():
            sys.stderr.write(text.strip() + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(
    total: int, title: str, unit: str, *, done: int = 0, shown: bool = True
) -> "tqdm[None]":
    """A bar with rate and time left; a line every 10 s where nobody watches a terminal.

    `done` of `total` was done before, and does not count for the rate.
    """
    watched = sys.stderr.isatty()
    file: Any = sys.stderr if watched else _Lines()
    return tqdm(
        total=total,
        initial=done,
        desc=title,
        unit=unit,
        unit_scale=unit != "step",
        disable=not shown,
        dynamic_ncols=watched,
        mininterval=0.2 if watched else 10.0,
        file=file,
    )
