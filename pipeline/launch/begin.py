"""How a rank of our own launcher begins: `python -m pipeline.launch.begin MODULE ARGUMENT ...`.

It is to end with the launcher from its first instant, and MODULE loads libraries for seconds.
"""

import runpy
import sys

from pipeline.parallel.parent import die_with_parent


def main() -> None:
    """Run the module that is named first, with the other arguments, as `python -m` would."""
    die_with_parent()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
