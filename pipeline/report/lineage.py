"""Where the weights of continued runs come from, as a table names it and as a page tells it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.label import label
from pipeline.errors import DataError
from pipeline.report.reading import Run

NO_EXTENSION = "none"


def origin_of_treatment(config: Mapping[str, Any]) -> str | None:
    """The ``init_from`` of a configuration, the same for runs that continue the same treatment:
    ``{seed}`` and ``{position}`` stand in the folder's name where this run has its own. None for a
    run that continues no other.

    Runs of several seeds that each continue their own, and runs that all continue one, are both
    one treatment; see `one_origin` for what the latter can tell.
    """
    if config.get("init_from") is None:
        return None
    path, position = Path(config["init_from"]), config["position"]["name"]
    name = path.name.replace("{position}", position).replace("{seed}", "0")
    name = re.sub(r"-s\d+(?=-|$)", "-s{seed}", name, count=1)
    if name.startswith(f"{position}-L"):
        name = "{position}" + name.removeprefix(position)
    return str(path.with_name(name))


def one_origin(runs: Sequence[Run]) -> bool:
    """Whether several runs all go back to the same weights: then they differ by what came after
    these alone, and are no sample of what another seed would have given from the beginning."""
    roots = _roots(runs)
    return len(roots) > 1 and len(set(roots)) == 1


def check_origins(label: str, runs: Sequence[Run]) -> None:
    """Refuse seeds of one encoding of which some go back to the same weights and others do not.

    Raises:
        DataError: an interval over them would be neither over origins nor over continuations.
    """
    roots = _roots(runs)
    if 1 < len(set(roots)) < len(roots):
        from_ = ", ".join(f"{run.path} from {run.lineage[0]['run']}" for run in runs if run.lineage)
        raise DataError(
            f"{label}: some of these runs continue the same weights and others do not ({from_}), "
            "so they are no seeds of one kind. Name runs of which each continues its own, or all "
            "continue one"
        )


def origin_note(label: str, runs: Sequence[Run]) -> str | None:
    """What the seeds of an encoding cannot tell that all continue one run; None for others."""
    if not one_origin(runs):
        return None
    return (
        f"{label}: all {len(runs)} seeds continue the same weights, those of "
        f"{runs[0].lineage[0]['run']}, so intervals over seeds cover the training since then only, "
        "and there is no p."
    )


def _roots(runs: Sequence[Run]) -> list[str]:
    """Of each continued run, the sha256 of the oldest weights that it has its own from."""
    return [str(run.lineage[0]["weights_sha256"]) for run in runs if run.lineage]


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
