"""Commands that show: `report`, `dashboard`, `bench` and `positions`."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.config.label import shown


def add(commands: Any) -> None:
    """Add them to the command line."""
    report = commands.add_parser("report", help="table and page with curves from run folders")
    report.add_argument("folders", type=Path, nargs="+", help="run folders, or folders of them")
    report.add_argument("--out", type=_folder, default=Path("report"), help="default: report")
    report.set_defaults(command=_report)
    dashboard = commands.add_parser(
        "dashboard", help="a workspace and a report on Weights & Biases from a study's runs"
    )
    dashboard.add_argument("study", type=Path, help="folder of the run folders of one experiment")
    dashboard.set_defaults(command=_dashboard)
    _benched(commands.add_parser("bench", help="time and memory, also beside other libraries"))
    positions = commands.add_parser(
        "positions", help="the position encodings, their extensions and position ids, with facts"
    )
    positions.add_argument(
        "--json", action="store_true", help="one JSON object a line, each a kind"
    )
    positions.set_defaults(command=_positions)


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


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("names no folder; leave it out, or name one")
    return Path(text)


def _report(arguments: argparse.Namespace) -> int:
    from pipeline.launch.tables import find_runs, report

    report(find_runs(arguments.folders), arguments.out)
    return 0


def _dashboard(arguments: argparse.Namespace) -> int:
    from pipeline.launch.tables import find_runs
    from pipeline.report.dashboard import publish

    for name, address in zip(
        ("workspace", "report"),
        publish(find_runs([arguments.study]), arguments.study),
        strict=True,
    ):
        print(f"{name}: {address}")
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
    for facts in every:
        print(json.dumps(facts) if arguments.json else _in_words(facts))
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
