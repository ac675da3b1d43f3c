"""`python -m pipeline COMMAND`."""

import sys

from pipeline.launch.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
