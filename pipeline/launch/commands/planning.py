"""The command that says what a run would need: `plan`."""

import argparse
import json
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add it to the command line."""
    plan = commands.add_parser("plan", help="parameters, memory, exchange and time of a run")
    plan.add_argument("config", type=Path, help="a YAML file such as configs/demo.yaml")
    plan.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, last wins")
    plan.add_argument("--gpus", type=int, metavar="N", help="plan for N GPUs, one rank each")
    plan.add_argument("--gpu-memory", type=float, metavar="GIB", help="memory of one GPU")
    plan.add_argument("--flops", type=float, metavar="F", help="FLOP per second of one rank")
    plan.add_argument("--bench", type=Path, metavar="FILE", help="bench.json that knows the rate")
    plan.add_argument("--json", action="store_true", help="the same figures as one JSON object")
    plan.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from pipeline.launch.planning.asked import Asked
    from pipeline.launch.planning.page import page
    from pipeline.launch.planning.plan import plan

    asked = Asked(arguments.gpus, arguments.gpu_memory, arguments.flops, arguments.bench)
    found = plan(asked.configs(arguments.config, arguments.overrides), asked)
    print(json.dumps(found) if arguments.json else page(found))
    return 0
