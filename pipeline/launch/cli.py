"""The commands of `python -m pipeline`. Each returns an exit code: 0 done, else see `errors`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config.compose import load
from pipeline.config.label import shown
from pipeline.config.redact import canonical_yaml
from pipeline.errors import ConfigError, FarsightError, StorageError, disk_refused
from pipeline.launch.ranks import is_rank
from pipeline.parallel.stop import StopRequest

_EPILOG = "Exit codes: 0 done, 2 bad configuration or data, 3 checkpoint, 4 diverged, 74 disk, 85 asked to stop."


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
    _configured(commands.add_parser("train", help="train and test a configuration or its sweep"))
    prepare = commands.add_parser("prepare", help="prepare the corpus of a configuration")
    _config(prepare, _prepare)
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
    report = commands.add_parser("report", help="table and page with curves from run folders")
    report.add_argument("folders", type=Path, nargs="+", help="run folders, or folders of them")
    report.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    report.set_defaults(command=_report)
    _benched(commands.add_parser("bench", help="time and memory, also beside other libraries"))
    positions = commands.add_parser(
        "positions", help="the position encodings, their extensions and position ids, with facts"
    )
    positions.add_argument(
        "--json", action="store_true", help="one JSON object a line, each a kind"
    )
    positions.set_defaults(command=_positions)
    return parser


def _config(parser: argparse.ArgumentParser, command: Callable[..., int]) -> None:
    parser.add_argument("config", type=Path, help="a YAML file such as configs/demo.yaml")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, last wins")
    parser.set_defaults(command=command)


def _configured(parser: argparse.ArgumentParser) -> None:
    _config(parser, _train)
    parser.add_argument(
        "--task", type=int, metavar="N", help="run only run N of the sweep (from 0)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")


def _benched(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings on top of configs/bench.yaml"
    )
    for name, default, meaning in (
        ("positions", "rope,alibi,t5", "encodings"),
        ("lengths", "1024,2048", "tokens of the sequence"),
        ("measure", "attention,step", "attention, step"),
        ("against", "", "other libraries: hf, litgpt, x-transformers; they need the extra bench"),
    ):
        parser.add_argument(
            f"--{name}", default=default, metavar="A,B", help=f"{meaning} (default: {default})"
        )
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds (default: 3)")
    parser.add_argument("--out", type=Path, help="default: runs/bench/<time>")
    parser.set_defaults(command=_bench)


def _train(arguments: argparse.Namespace) -> int:
    stop = _listening()
    from pipeline.launch.checks import describe
    from pipeline.launch.continued import settle
    from pipeline.launch.study import train_study, varied_keys
    from pipeline.record.folder import run_name

    runs = load(arguments.config, arguments.overrides)
    axes = varied_keys(runs)
    if arguments.task is not None:
        if not 0 <= arguments.task < len(runs):
            raise ConfigError(
                f"--task {arguments.task}: {arguments.config} names {len(runs)} runs, "
                f"so a task is 0 to {len(runs) - 1}"
            )
        runs = [runs[arguments.task]]
    runs = settle(runs)
    if arguments.dry_run:
        for config in runs:
            print(f"# {run_name(config, axes)}: {describe(config)}\n{canonical_yaml(config)}")
        return 0
    if stop is not None:
        from pipeline.launch.as_rank import train_as_rank

        if len(runs) > 1:
            raise ConfigError(
                f"{arguments.config} names {len(runs)} runs; under srun or torchrun one job is "
                "one run: choose it with --task N (slurm/sweep.sbatch does)"
            )
        return train_as_rank(runs[0], run_name(runs[0], axes), stop)
    train_study(runs, axes)
    return 0


def _listening() -> StopRequest | None:
    """What asks this rank to stop; None in a process that nobody started as one. Early: until it
    listens, a signal ends the process."""
    if not is_rank():
        return None
    stop = StopRequest()
    stop.listen()
    return stop


def _prepare(arguments: argparse.Namespace) -> int:
    from pipeline.launch.checks import prepare_all

    for prepared in prepare_all(load(arguments.config, arguments.overrides)).values():
        print(prepared.folder)
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    stop = _listening()
    if stop is not None:
        from pipeline.launch.as_rank import evaluate_as_rank

        return evaluate_as_rank(arguments.run, arguments.overrides, stop)
    from pipeline.launch.retest import evaluate_run

    evaluate_run(arguments.run, arguments.overrides)
    return 0


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


def _probe(arguments: argparse.Namespace) -> int:
    from pipeline.launch.probe import probe_run

    probe_run(arguments.run, arguments.overrides, arguments.queries)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from pipeline.launch.tables import find_runs, report

    report(find_runs(arguments.folders), arguments.out)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from pipeline.bench.options import read_options
    from pipeline.bench.run import bench
    from pipeline.launch.checks import check_devices, check_model

    asked = {k: v for k, v in vars(arguments).items() if k not in ("command", "overrides")}
    options = read_options(arguments.overrides, **asked)
    for config in options.configs.values():
        check_devices(config)
        check_model(config)
    bench(options)
    return 0


def _positions(arguments: argparse.Namespace) -> int:
    from pipeline.model.modifier_facts import MODIFIERS
    from pipeline.positions import registry

    every = [registry.facts_of(name) for name in registry.names()]
    every += [registry.facts_of_extension(name) for name in registry.extension_names()]
    every += [registry.facts_of_ids(name) for name in registry.ids_names()]
    every += [{"name": one.name, "kind": "modifier", **asdict(one)} for one in MODIFIERS]
    try:
        for facts in every:
            print(json.dumps(facts) if arguments.json else _in_words(facts))
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has read enough; what is still held back must not fail at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StorageError(f"standard output: {error.strerror}") from error
    return 0


def _in_words(facts: dict[str, Any]) -> str:
    lines = [facts["name"]]
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name}={shown(item)}" for name, item in value.items()) or "none"
        if key != "name":
            text = ", ".join(value) if isinstance(value, tuple) else value
            lines.append(f"    {key.replace('_', ' ')}: {text}")
    return "\n".join(lines)
