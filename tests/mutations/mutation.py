"""One-line faults that the tests must catch; each names the test that kills it.

A fault is one replacement in one file. `matrix` picks the cases of the two-rank matrix that are
run for it (all else would take too long).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """Replace `old`, which occurs once in `file`, by `new`; then `test` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str
    matrix: str = ""
