"""`pipeline.launch.rank ...` after NAME BYTES: the disk refuses such files from there on."""

import errno
import sys

from pipeline.launch import rank
from tests.faults.inject import refusing_disk


def main() -> int:
    name, at = sys.argv[1:3]
    with refusing_disk(name, errno.ENOSPC, int(at)):
        return rank.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
