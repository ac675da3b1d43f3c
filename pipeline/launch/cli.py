"""The commands of `python -m pipeline`. Each returns an exit code: 0 done, else see `errors`."""

import argparse
import sys
from collections.abc import Callable, Sequence

from pipeline.errors import FarsightError, disk_refused
from pipeline.launch.commands import cluster, planning, showing, testing, training
from pipeline.record import marker

_EPILOG = (
    "Exit codes: 0 done, 2 bad configuration or data, 3 checkpoint, 4 diverged, 74 disk, "
    "85 stopped as asked: start it again."
)


def main(argv: Sequence[str]) -> int:
    """Run one command; errors are one line on standard error."""
    parser = _parser()
    arguments, more = parser.parse_known_args(argv)
    # argparse takes no settings after an option: `CONFIG --dry-run key=value`
    if more and hasattr(arguments, "overrides") and not any(x.startswith("-") for x in more):
        arguments.overrides += more
    elif more:
        # what stands behind an option may be a secret, and errors are kept in logs
        options = [word.partition("=")[0] for word in more if word.startswith("-")]
        parser.error(f"not understood: {' '.join(options) or 'what stands behind the command'}")
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        code = _ended(command, arguments)
    except BaseException:
        marker.leave(1)
        raise
    if code:
        marker.leave(code)
    return code


def _ended(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except FarsightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if (refused := disk_refused(error)) is None:
            raise
        print(f"error: {refused}", file=sys.stderr)
        return refused.exit_code
    except KeyboardInterrupt:
        print("stopped by you", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline",
        description="Pretrain under any position encoding, and measure how far each one reads.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in (training, planning, testing, showing, cluster):
        group.add(commands)
    return parser
