"""Progress on standard error: a bar on a terminal, a line now and then in a log."""

import sys

from tqdm import tqdm


def progress_bar(total: int, title: str, unit: str, *, shown: bool = True) -> "tqdm[None]":
    """A bar with rate and time left; refreshed every 10 s where nobody watches a terminal."""
    watched = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=title,
        unit=unit,
        unit_scale=unit != "step",
        disable=not shown,
        dynamic_ncols=watched,
        mininterval=0.2 if watched else 10.0,
        file=sys.stderr,
    )
