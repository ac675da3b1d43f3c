"""Where the weights of continued runs come from, as a table names it and as a page tells it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.label import label
from pipeline.report.reading import Run

NO_EXTENSION = "none"


def origin_of_treatment(config: Mapping[str, Any]) -> str | None:
    """The ``init_from`` of a configuration, the same for runs that continue the same treatment:
    ``{seed}`` and ``{position}`` stand in the folder's name where this run has its own. None for a
    run that continues no other.

    Runs of several seeds that each continue their own, and runs that all continue one, are both
    one treatment.
    """
    if config.get("init_from") is None:
        return None
    path, position = Path(config["init_from"]), config["position"]["name"]
    name = path.name.replace("{position}", position).replace("{seed}", "0")
    name = re.sub(r"-s\d+(?=-|$)", "-s{seed}", name, count=1)
    if name.startswith(f"{position}-L"):
        name = "{position}" + name.removeprefix(position)
    return str(path.with_name(name))


def origin_words(run: Run, same: Sequence[Run]) -> list[str]:
    """What tells a continued run from others of its encoding, ``same``: the extension it was
    trained under, and the lengths that its weights were trained at before, or, where these are
    those of others too, the run that they are from. Nothing for a run that continues no other."""
    own = origin_of_treatment(run.config)
    if own is None:
        return []
    extension = run.config.get("extension", {"name": NO_EXTENSION})
    words = [] if extension["name"] == NO_EXTENSION else [label(extension)]
    origins = {origin_of_treatment(other.config) for other in same} - {None}
    if len(origins) > 1:
        place = "/".join(Path(own).parts[-2:])
        return [*words, f"from {place.replace('{position}', run.config['position']['name'])}"]
    lengths = [f"L{one['train_length']}" for one in run.lineage]
    return [*words, f"from {' and '.join(lengths)}"]


def lineage_line(run: Run) -> str | None:
    """From which runs, oldest first, a continued run has its weights; None for another."""
    if not run.lineage:
        return None
    steps = []
    for one in run.lineage:
        under = "" if one["extension"] == NO_EXTENSION else f" under {one['extension']}"
        steps.append(
            f"{one['run']} ({one['step']} steps of {one['train_length']} tokens a sequence{under}, "
            f"{one['tokens']:,} tokens in all; configuration {one['config_hash'][:12]}, weights "
            f"{one['weights_sha256'][:12]})"
        )
    return f"{run.name} continues {', which continued '.join(reversed(steps))}."
