"""Commands that look at a trained run: `evaluate`, `grid` and `probe`."""

import argparse
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.launch.commands.listening import listening, stoppable


def add(commands: Any) -> None:
    """Add them to the command line."""
    evaluate = commands.add_parser(
        "evaluate", help="test a trained run again, or under an extension"
    )
    evaluate.add_argument("run", type=Path, help="run folder")
    evaluate.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="extension=NAME extension.SETTING=VALUE, evaluate.*, eval_lengths or trainer.*",
    )
    evaluate.set_defaults(command=_evaluate)
    grid = commands.add_parser("grid", help="test a trained run under every extension that fits")
    grid.add_argument("run", type=Path, help="run folder")
    grid.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings as of evaluate")
    grid.add_argument(
        "--scales", metavar="A,B", help="lengths to reach, in train lengths (default: eval_lengths)"
    )
    grid.set_defaults(command=_grid)
    probe = commands.add_parser("probe", help="look inside a trained run: attention, positions")
    probe.add_argument("run", type=Path, help="run folder")
    probe.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="extension=NAME extension.SETTING=VALUE, eval_lengths, evaluate.documents, ...",
    )
    probe.add_argument(
        "--queries", type=int, metavar="N", help="tokens of a document whose attention is looked at"
    )
    probe.set_defaults(command=_probe)


@stoppable()
def _evaluate(arguments: argparse.Namespace) -> int:
    stop = listening()
    if stop is not None:
        from pipeline.launch.as_rank import evaluate_as_rank

        return evaluate_as_rank(arguments.run, arguments.overrides, stop)
    from pipeline.launch.retest import evaluate_run

    evaluate_run(arguments.run, arguments.overrides)
    return 0


@stoppable()
def _grid(arguments: argparse.Namespace) -> int:
    from pipeline.launch.grid import test_grid

    scales = None
    if arguments.scales is not None:
        try:
            scales = [float(scale) for scale in arguments.scales.split(",")]
        except ValueError as error:
            raise ConfigError(
                f"--scales {arguments.scales}: numbers with commas between them, such as 2,4,8"
            ) from error
    test_grid(arguments.run, scales, arguments.overrides)
    return 0


@stoppable()
def _probe(arguments: argparse.Namespace) -> int:
    from pipeline.launch.probe import probe_run

    probe_run(arguments.run, arguments.overrides, arguments.queries)
    return 0
