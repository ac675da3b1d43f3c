"""How long a run would take, from a rate that somebody measured or named; never from a guess."""

import json
import math
from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.model.flops import step_flops


def run_flops(config: Config) -> int:
    """Model FLOPs of the whole training, as MFU counts them: the same under every encoding, nothing
    that is computed again, and no test."""
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
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
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
    nearest = min(own, key=lambda length: abs(length - config.train_length))
    if not 0 < own[nearest] < math.inf:
        raise ConfigError(
            f"--bench={path}: the step of {name} at {nearest} tokens has {own[nearest]} FLOP per "
            "second, which is no rate: flops and median_seconds have to be numbers above 0. "
            "Measure it again: `python -m pipeline bench --measure step`"
        )
    return own[nearest], gpu


def hours(flops: int, rate: float, workers: int) -> float:
    """Hours of so many FLOPs at `rate` FLOP per second on each of `workers`."""
    return flops / (rate * workers) / 3600.0
