"""`pipeline.launch.rank ...` after RANK STEP WHAT VALUE: one number there is another."""

import sys
from functools import partial

from pipeline.launch import rank
from pipeline.training import fit
from tests.faults.inject import Poisoned


def main() -> int:
    who, step, what, value = sys.argv[1:5]
    poisoned = partial(Poisoned, rank=int(who), step=int(step), what=what, value=float(value))
    setattr(fit, "Pretraining", poisoned)  # noqa: B010
    return rank.main(sys.argv[5:])


if __name__ == "__main__":
    sys.exit(main())
