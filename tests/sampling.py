"""A part of what takes hours, another one at every commit."""

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.distributed.ranks import ROOT

Thing = TypeVar("Thing")


def sampled(
    things: Sequence[Thing], count: int, commit: str, name: Callable[[Thing], str]
) -> list[Thing]:
    """`count` of the things, chosen by the commit, in their order; 0 = all."""

    def draw(thing: Thing) -> bytes:
        return hashlib.sha256(f"{commit} {name(thing)}".encode()).digest()

    drawn = {name(thing) for thing in sorted(things, key=draw)[: count or len(things)]}
    return [thing for thing in things if name(thing) in drawn]


def commit_here() -> str:
    """The commit of this tree; nothing outside a clone."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
