"""The commands of `python -m pipeline`. Each returns an exit code: 0 done, else see `errors`."""

import argparse
import hashlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from pipeline.errors import FarsightError, Preempted, StorageError, disk_refused
from pipeline.launch.commands import cluster, planning, showing, testing, training
from pipeline.record import marker

_EPILOG = (
    "Exit codes: 0 done, 2 bad configuration or data, 3 checkpoint, 4 diverged, 74 disk, or "
    "another job writes the run, 85 stopped as asked: start it again."
)


def main(argv: Sequence[str]) -> int:
    """Run one command; errors are one line on standard error."""
    _open_streams()
    arguments = parse(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        code = _flushed(_ended(command, arguments))
    except BaseException:
        marker.leave(1)
        raise
    if code:
        marker.leave(code)
    return code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What a command line asks for. Raises SystemExit, with the usage said, if it is none."""
    parser = _parser()
    arguments, more = parser.parse_known_args(argv)
    # argparse takes no settings after an option: `CONFIG --dry-run key=value`
    if more and hasattr(arguments, "overrides") and not any(x.startswith("-") for x in more):
        arguments.overrides += more
    elif more:
        # what stands behind an option may be a secret, and errors are kept in logs
        options = [word.partition("=")[0] for word in more if word.startswith("-")]
        parser.error(f"not understood: {' '.join(options) or 'what stands behind the command'}")
    return arguments


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, for ranks too: else the next file that is opened
    gets the number of one, and with it what libraries say there.

    What a stream refuses must stay in its buffer, which tells whose fault it was (`_flushed`).
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode))
    for name, errors in (("stdout", "replace"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED
            number, encoding = stream.fileno(), stream.encoding
            stream = os.fdopen(number, "w", buffering=1, encoding=encoding, closefd=False)
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that knows no ± gets a question mark for it
            stream.reconfigure(errors=errors, write_through=True)


def _ended(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except Preempted as asked:
        print(asked, file=sys.stderr)
        return asked.exit_code
    except FarsightError as error:
        _say_once(error)
        return error.exit_code
    except BrokenPipeError:
        # `| head` has read enough; where it is the log that nobody reads, this raises again
        sys.stderr.flush()
        return 0
    except OSError as error:
        # what has no name may be standard output
        if error.filename is None and (code := _flushed(0)):
            return code
        if (refused := disk_refused(error)) is None:
            raise
        print(f"error: {refused}", file=sys.stderr)
        return refused.exit_code
    except KeyboardInterrupt:
        print("stopped by you", file=sys.stderr)
        return 130


def _say_once(error: FarsightError) -> None:
    """Say what is wrong, unless it is word for word what the first rank of this job that failed
    has said. What they have in common is the file that a batch script reads; without, each says it.
    """
    words = f"error: {error}"
    digest = hashlib.sha256(words.encode()).hexdigest()[:12]
    own = f"{os.environ.get('RANK') or os.environ.get('SLURM_PROCID')}:{digest}"
    marker.leave(error.exit_code, own)
    first = marker.told() or own
    if first == own or not first.endswith(digest):
        print(words, file=sys.stderr, flush=True)


def _flushed(code: int) -> int:
    """Let out what standard output still holds back, while it can be said that it takes no more."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code
        refused = StorageError(f"standard output: {error.strerror}")
        print(f"error: {refused}", file=sys.stderr)
        return code or refused.exit_code
    return code


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
