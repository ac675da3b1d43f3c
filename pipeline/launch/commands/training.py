"""Commands that make runs: `train` and `prepare`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.config.compose import load
from pipeline.config.redact import canonical_yaml
from pipeline.errors import ConfigError
from pipeline.launch.commands.listening import listening, stoppable


def add(commands: Any) -> None:
    """Add them to the command line."""
    train = commands.add_parser("train", help="train and test a configuration or its sweep")
    _config(train, _train)
    train.add_argument("--task", type=int, metavar="N", help="run only run N of the sweep (from 0)")
    train.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    prepare = commands.add_parser("prepare", help="prepare the corpus of a configuration")
    _config(prepare, _prepare)


def _config(parser: argparse.ArgumentParser, command: Callable[..., int]) -> None:
    parser.add_argument("config", type=Path, help="a YAML file such as configs/demo.yaml")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, last wins")
    parser.set_defaults(command=command)


@stoppable()
def _train(arguments: argparse.Namespace) -> int:
    stop = None if arguments.dry_run else listening()
    from pipeline.launch.checks import describe, say
    from pipeline.launch.frozen import named_runs
    from pipeline.launch.study import train_study

    named = named_runs(arguments.config, arguments.overrides, arguments.task)
    if arguments.dry_run:
        for config, name in named:
            print(f"# {name}: {describe(config)}\n{canonical_yaml(config)}")
        say(f"what it needs, in memory and time: python -m pipeline plan {arguments.config}")
        return 0
    if stop is not None:
        from pipeline.launch.as_rank import train_as_rank

        if len(named) > 1:
            raise ConfigError(
                f"{arguments.config} names {len(named)} runs; under srun or torchrun one job is "
                "one run: choose it with --task N (slurm/sweep.sbatch does)"
            )
        return train_as_rank(*named[0], stop)
    train_study(named)
    return 0


@stoppable()
def _prepare(arguments: argparse.Namespace) -> int:
    from pipeline.launch.checks import prepare_all

    for prepared in prepare_all(load(arguments.config, arguments.overrides)).values():
        print(prepared.folder)
    return 0
