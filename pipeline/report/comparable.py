"""Which runs may stand in one table, and what to do about those that may not."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pipeline.config.dotted import dotted
from pipeline.config.schema import NAMED_GROUPS
from pipeline.errors import DataError
from pipeline.report.lineage import origin_of_treatment
from pipeline.report.reading import Run

# Keys, or their beginnings, that may differ without the runs being different treatments.
NOT_A_TREATMENT = (
    "seed", "runs", "experiment", "wandb.", "data.prepared", "data.workers", "trainer.threads",
    "trainer.log_every",
    # follows from init_from
    "encoding_length",
)  # fmt: skip
SAME_IN_ONE_TABLE = ("text_sha256", "suffix_tokens", "train_length", "split", "stride")
# of what is measured after training; the short evaluations are made in the precision of training
SAME_IN_TESTS = ("precision", "corpus_sha256", "tokenizer_sha256", "code_sha256")
SAME_IN_TRAINING = ("corpus_sha256", "tokenizer_sha256")
# Keys, or their beginnings, that decide which text is scored.
DECIDE_TEXT = (
    "eval_lengths", "train_length", "evaluate.documents", "evaluate.sliding_documents",
    "evaluate.suffix_tokens", "evaluate.split", "evaluate.task_examples", "data.",
)  # fmt: skip
DECIDE_SHORT_TEXT = (
    "eval_lengths", "train_length", "evaluate.short_documents", "evaluate.suffix_tokens", "data.",
)  # fmt: skip


def check_comparable(runs: Sequence[Run]) -> None:
    """Refuse runs that were trained on different text or by different code, or scored on different
    targets.

    Raises DataError naming the field, the values and the folders.
    """
    for field in SAME_IN_TRAINING:
        _check_training(runs, field)
    _check_training_code(runs)
    for field in SAME_IN_ONE_TABLE:
        _check_rows(runs, field, "rows")
        _check_rows(runs, field, "short_rows")
    for field in SAME_IN_TESTS:
        _check_rows(runs, field, "rows")


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys and values of a configuration, without those that are no treatment."""
    flat = dotted(config)
    if "init_from" in flat:
        flat["init_from"] = origin_of_treatment(config)
    return {key: value for key, value in flat.items() if not key.startswith(NOT_A_TREATMENT)}


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Keys whose values differ, with the values in order of appearance."""
    flats = [flat_settings(run.config) for run in runs]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    found: dict[str, list[Any]] = {}
    for key in keys:
        values: list[Any] = []
        for flat in flats:
            if key in flat and flat[key] not in values:
                values.append(flat[key])
        if len(values) > 1:
            found[key] = values
    return found


def _check_training(runs: Sequence[Run], field: str) -> None:
    seen: dict[str, Run] = {}
    for run in runs:
        seen.setdefault(run.summary[field], run)
    if len(seen) > 1:
        raise DataError(
            "these runs do not belong in one table: they were trained on different text. "
            f"{_settings(list(seen.values()), ('data.',))}{field} differs ({_where(seen)}). "
            "Report them separately"
        )


def _check_training_code(runs: Sequence[Run]) -> None:
    """Runs by what all encodings share, and those of one encoding by its own files as well.

    Of runs that were trained on, also what trained the runs before them, generation by generation.
    """
    alike: dict[str, list[Run]] = {}
    for run in runs:
        names = [run.config.get(group, {}).get("name") for group in NAMED_GROUPS]
        alike.setdefault(str(names), []).append(run)
    for back in range(1 + max(len(run.lineage) for run in runs)):
        for group, part in ((runs, 0), *((some, 1) for some in alike.values())):
            _check_one_code(group, back, part)


def _check_one_code(runs: Sequence[Run], back: int, part: int) -> None:
    """A run that went on under other code is like no other. Older runs do not say their code."""
    seen: dict[tuple[object, ...], Run] = {}
    for run in runs:
        generations = [run.summary, *reversed(run.lineage)]
        told = generations[back].get("training_sha256", []) if back < len(generations) else []
        codes = [code for code, _ in groupby(str(one).split(":")[-part] for one in told)]
        if codes:
            seen.setdefault((*codes, run.path if len(codes) > 1 else None), run)
    if len(seen) > 1:
        where = (
            f"{' then '.join(str(code)[:12] for code in codes)} in {run.path}"
            for (*codes, _), run in seen.items()
        )
        raise DataError(
            "these runs do not belong in one table: they were trained by different code. "
            f"training_sha256 differs, or changed on the way ({', '.join(where)}). "
            "Report them separately, or train them again by one code"
        )


def _check_rows(runs: Sequence[Run], field: str, kind: str) -> None:
    """Refuse runs whose rows differ in a field although they are shown side by side."""
    seen: dict[tuple[object, ...], dict[object, Run]] = {}
    for run in runs:
        for row in getattr(run, kind):
            # Protocols without a suffix have no suffix_tokens: no disagreement.
            if row.get(field) is not None:
                seen.setdefault(_side_by_side(row, field), {}).setdefault(row[field], run)
    for where, values in seen.items():
        if len(values) > 1:
            why = _why_text(values, kind, str(where[0])) if field == "text_sha256" else ""
            raise DataError(
                f"these runs do not belong in one table: {why}{field} differs "
                f"({_where(values)}). {_advice(kind)}"
            )


def _side_by_side(row: Mapping[str, Any], field: str) -> tuple[object, ...]:
    """Equal for rows that must agree in a field."""
    if field == "stride":
        return row["protocol"], row["length"]
    if field != "text_sha256":
        return ()
    if row["protocol"] == "task":
        return "task", row.get("task"), row["length"], row.get("depth")
    # Protocols may score different text, but one is the control of the other.
    return ("suffix" if row["protocol"] == "window control" else row["protocol"],)


def _why_text(values: Mapping[object, Run], kind: str, protocol: str) -> str:
    """The settings, and the facts of the rows themselves, behind texts that differ."""
    runs = list(values.values())
    found = _settings(runs, DECIDE_TEXT if kind == "rows" else DECIDE_SHORT_TEXT)
    # Rows may come from `evaluate` with other settings than the run's own.
    for fact in ("length", "documents", "suffix_tokens", "split"):
        held = [(run, _held(getattr(run, kind), protocol, fact)) for run in runs]
        found += _differences(f"{fact} in rows of {protocol}", held)
    return found


def _held(rows: Sequence[Mapping[str, Any]], protocol: str, fact: str) -> str:
    found = (str(row.get(fact)) for row in rows if row["protocol"] == protocol)
    return ", ".join(dict.fromkeys(found))


def _settings(runs: Sequence[Run], keys: tuple[str, ...]) -> str:
    """``key is A in one and B in other; `` for every setting out of ``keys`` that differs."""
    flats = {run.path: flat_settings(run.config) for run in runs}
    names = dict.fromkeys(key for flat in flats.values() for key in flat if key.startswith(keys))
    names = {name: None for name in names if not name.startswith("data.mix.")}  # text is the same
    return "".join(
        _differences(name, [(run, flats[run.path].get(name)) for run in runs]) for name in names
    )


def _differences(name: str, values: Sequence[tuple[Run, object]]) -> str:
    if all(value == values[0][1] for _, value in values):
        return ""
    return f"{name} is {' and '.join(f'{value} in {run.where}' for run, value in values)}; "


def _where(values: Mapping[Any, Run]) -> str:
    # Twelve digits tell hashes apart; other values are short.
    return ", ".join(f"{str(value)[:12]} in {run.where}" for value, run in values.items())


def _advice(kind: str) -> str:
    if kind == "short_rows":
        return "These are evaluations made during training: report the runs separately"
    return (
        "Report them separately, or evaluate them again with the same settings; "
        "`python -m pipeline evaluate RUN` without settings restores a run's own rows"
    )
