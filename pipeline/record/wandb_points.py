"""What a row, and a configuration, are on Weights & Biases: points of curves, and flat keys."""

import re
from collections.abc import Mapping
from typing import Any

from pipeline.config.groups import is_name

SCORES = ("loss", "perplexity", "bits_per_byte")
TASK_SCORES = ("exact_match", "loss", "rank")


def points(row: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(x axis, values including the x) for each point that a row stands for; without nulls.

    Train rows, spikes and the short evaluations during training lie over ``train/tokens``, the
    final evaluation over ``eval/length``, and per-position losses over ``eval/position``. Metrics
    of a task bear its name. Those of a needle end in its depth in per cent, as ``_d25``: its mean
    over depths, a row without one, is a curve like that of any task.
    """
    if row.get("kind") == "train":
        values = {f"train/{key}": value for key, value in row.items() if key != "kind"}
        return [("train/tokens", _present(values))]
    if row.get("kind") == "spike":
        return [("train/tokens", {"train/tokens": row["tokens"], "train/spike": row["loss"]})]
    if row["protocol"] == "task":
        depth = "" if row["depth"] is None else f"_d{100 * row['depth']:g}".replace(".", "_")
        values = {f"eval/{row['task']}_{key}{depth}": row.get(key) for key in TASK_SCORES}
        point = _present(values)
        return [("eval/length", {"eval/length": row["length"], **point})] if point else []
    protocol = re.sub(r"[^a-z]", "_", row["protocol"])
    if row.get("kind") == "evaluation":
        values = {f"train/{protocol}_{key}_L{row['length']}": row.get(key) for key in SCORES}
        point = _present(values)
        return [("train/tokens", {"train/tokens": row["tokens"], **point})] if point else []
    if row.get("losses"):
        name, size = f"eval/{protocol}_loss", row["bin"]
        return [
            ("eval/position", {"eval/position": number * size + size // 2, name: loss})
            for number, loss in enumerate(row["losses"])
        ]
    point = _present({f"eval/{protocol}_{key}": row.get(key) for key in SCORES})
    return [("eval/length", {"eval/length": row["length"], **point})] if point else []


def flat_config(nested: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with one level of keys, as W&B groups by: ``model_width``, ``position``.

    ``position`` is the name of the encoding; its own settings are ``position_<setting>``. So with
    the other named groups.
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        for name, item in value.items() if isinstance(value, Mapping) else ():
            flat[key if is_name(f"{key}.{name}") else f"{key}_{name}"] = item
        if not isinstance(value, Mapping):
            flat[key] = value
    return flat


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
