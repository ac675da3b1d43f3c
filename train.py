"""`python train.py CONFIG [key=value ...]`: the same as `python -m pipeline train`."""

import sys

from pipeline.launch.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
