"""Commands for clusters: `submit`, `status`, `watch` and `sync`."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError

_WATCH = (
    "Show the table of `status` until all runs are finished; exit code 1 where the jobs of the "
    "others, which `submit` started, have ended. What was started in another way is waited for: "
    "end that with Ctrl-C."
)


def add(commands: Any) -> None:
    """Add them to the command line."""
    submit = commands.add_parser("submit", help="check and keep runs, and hand them to SLURM")
    submit.add_argument("config", type=Path, help="a YAML file, or a run folder")
    submit.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, last wins")
    submit.add_argument("--array", action="store_true", help="all runs of a sweep, one task each")
    submit.add_argument("--at-once", type=int, metavar="N", help="of an array, N tasks at a time")
    submit.add_argument(
        "--sbatch", default="", metavar="OPTIONS",
        help="more for sbatch, joined by =, such as --sbatch='--time=2:00:00 --qos=long'",
    )  # fmt: skip
    submit.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    submit.set_defaults(command=_submit)
    status = commands.add_parser("status", help="state, step, loss and job of every run")
    status.add_argument("folders", type=Path, nargs="+", help="run folders, or folders of them")
    status.set_defaults(command=_status)
    watch = commands.add_parser(
        "watch", help="the same again and again, until all runs are finished", description=_WATCH
    )
    watch.add_argument("folders", type=Path, nargs="+", help="run folders, or folders of them")
    watch.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds; default: 5")
    watch.set_defaults(command=_watch)
    sync = commands.add_parser("sync", help="send to W&B what was written offline")
    sync.add_argument("folders", type=Path, nargs="+", help="run folders, or folders of them")
    sync.set_defaults(command=_sync)


def _submit(arguments: argparse.Namespace) -> int:
    from pipeline.launch.submit import submit

    submit(
        arguments.config,
        arguments.overrides,
        array=arguments.array,
        at_once=arguments.at_once,
        options=_options(arguments.sbatch),
        dry=arguments.dry_run,
    )
    return 0


def _options(text: str) -> list[str]:
    """The words of `--sbatch`; what it holds may be a secret, and is not repeated."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--sbatch: {error}; quote its words as for a shell") from error
    for number, word in enumerate(words, start=1):
        # sbatch would take it for the script
        if not word.startswith("-"):
            raise ConfigError(
                f"--sbatch: word {number} of it is no option; each begins with -, and a value is "
                "joined to its option by =, such as --time=2:00:00"
            )
    return words


def _status(arguments: argparse.Namespace) -> int:
    from pipeline.launch.status import status

    standing = status(arguments.folders)
    print(standing.table)
    for words in standing.damage:
        print(words, file=sys.stderr)
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    from pipeline.launch.watch import watch

    return 0 if watch(arguments.folders, arguments.every) else 1


def _sync(arguments: argparse.Namespace) -> int:
    from pipeline.launch.sync import sync

    sync(arguments.folders)
    return 0
