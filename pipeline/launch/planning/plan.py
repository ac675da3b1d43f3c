"""The plan of a configuration and its sweep."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.config.label import shown
from pipeline.config.schema import Config
from pipeline.launch.planning.asked import Asked
from pipeline.launch.planning.figures import Planned
from pipeline.launch.study import varied_keys
from pipeline.training.quiet import quiet_libraries


def plan(configs: Sequence[Config], asked: Asked) -> dict[str, Any]:
    """Figures of all runs that differ in more than their seed, and details of the one that needs
    the most memory.

    Raises:
        ConfigError: an option or a run is refused.
    """
    asked.check()
    quiet_libraries()
    runs = list({repr(replace(config, seed=0)): config for config in configs}.values())
    varied = [key for key in varied_keys(runs) if key != "seed"] or ["position"]
    planned = {_name(config, varied): Planned(config, asked) for config in runs}
    rows = [
        {
            "name": name,
            "precision": one.config.trainer.precision,
            "zero_stage": one.config.trainer.zero_stage,
            **one.summary(),
        }
        for name, one in planned.items()
    ]
    most = max(rows, key=lambda row: row["rank"]["peak"])["name"]
    return {"runs": rows, "shown": most, "details": planned[most].details()}


def _name(config: Config, keys: Sequence[str]) -> str:
    return ", ".join(_value(config, key) for key in keys)


def _value(config: Config, key: str) -> str:
    found: Any = config
    for word in key.split("."):
        found = found[word] if isinstance(found, dict) else getattr(found, word)
    if isinstance(found, dict):
        return str(found["name"])
    return f"{key}={shown(found)}"
