"""`pipeline.launch.rank`, but that one rank's gradient is not finite at one step."""

import sys
from functools import partial

from pipeline.launch import rank
from pipeline.training import fit
from tests.faults.inject import Poisoned

if __name__ == "__main__":
    poisoned = partial(Poisoned, rank=1, step=3, what="blocks.0.attention.qkv", value=float("nan"))
    setattr(fit, "Pretraining", poisoned)  # noqa: B010
    sys.exit(rank.main(sys.argv[1:]))
