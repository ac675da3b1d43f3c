"""How long a run would take, from a rate that somebody measured or named; never from a guess."""

import json
from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.model.flops import step_flops


def run_flops(config: Config) -> int:
    """FLOPs of the whole training; nothing that is computed again counts, and no test."""
    trainer = config.trainer
    one = step_flops(config.model, config.data.vocab, config.train_length)
    return one * trainer.batch_sequences * trainer.max_steps


def benched_rate(path: Path, config: Config) -> tuple[float, bool]:
    """FLOP per second of whole steps in a bench.json, of this encoding at the length nearest to
    that of training; and whether they were measured on a GPU.

    Raises:
        ConfigError: the file is not one of `python -m pipeline bench`, or has no such step.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        steps = [
            row
            for row in record["results"]
            if row["measure"] == "step" and row["maker"] == "farsight" and not row["failure"]
        ]
        rates = {
            (row["position"], row["length"]): row["flops"] / row["median_seconds"] for row in steps
        }
        gpu = record["device"] != "cpu"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"--bench={path} is no bench.json: {error!r}. `python -m pipeline bench "
            "--measure step` writes one, and prints where"
        ) from error
    name = config.position["name"]
    own = {length: rate for (position, length), rate in rates.items() if position == name}
    if not own:
        measured = ", ".join(sorted({position for position, _ in rates})) or "no steps at all"
        raise ConfigError(
            f"--bench={path} has {measured}, not position={name}; measure it: "
            f"`python -m pipeline bench --measure step --positions {name}`"
        )
    return own[min(own, key=lambda length: abs(length - config.train_length))], gpu


def hours(config: Config, rate: float, workers: int) -> float:
    """Hours of training at `rate` FLOP per second on each of `workers`."""
    return run_flops(config) / (rate * workers) / 3600.0
