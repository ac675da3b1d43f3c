"""`python train.py CONFIG [key=value ...]`: the same as `python -m pipeline train`."""

import sys

try:
    from pipeline.launch.cli import main
except ModuleNotFoundError as error:
    if (error.name or "").startswith("pipeline"):
        raise
    sys.exit(f"error: {error}. `make install` installs into .venv; then: source .venv/bin/activate")

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
