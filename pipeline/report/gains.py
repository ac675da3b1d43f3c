"""What each encoding makes of context: gain, usable length, RECL, and the power law within."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.evaluate.bootstrap import (
    LEAST_DOCUMENTS,
    RESAMPLES,
    expanded_percentile,
    resampled_ratios,
)
from pipeline.evaluate.power_law import PowerLaw, fit_power_law
from pipeline.evaluate.recl import Reach, effective_lengths
from pipeline.evaluate.seeds import paired
from pipeline.evaluate.usable import usable_lengths
from pipeline.report.collect import Study
from pipeline.report.pairs import Interval, document_intervals, mean_sums
from pipeline.report.values import Values, losses

SHARES = (0.1, 1.0)  # of the targets, that RECL is over
CSV_COLUMNS = (
    "encoding", "extension", "quantity", "length", "value", "low_over_documents",
    "high_over_documents", "low_over_seeds", "high_over_seeds", "seeds", "note",
)  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """Suffix loss at the train length minus that at `length`, nats per token.

    Positive where the longer context helps. Intervals as of a pair; `reason` says why one is None.
    """

    length: int
    value: float
    over_documents: Interval | None
    over_seeds: Interval | None
    reason: str


@dataclass(frozen=True)
class Gains:
    """Everything about one encoding's use of context; what is not known is the reason why.

    `usable` in tokens, None where nothing was measured within the train length, with its interval
    over documents; `recl[r][seed]` the RECL over the share r of the targets.
    """

    label: str
    seeds: int
    gains: list[Gain]
    usable: int | None
    usable_over: Interval | str
    recl: dict[float, dict[int, Reach] | str]
    power_law: PowerLaw | str


def find_gains(study: Study, values: Values) -> list[Gains]:
    """One entry for each encoding, in the order of the study."""
    reaches = {share: _reaches(study, values, share) for share in SHARES}
    found = []
    for label, runs in study.encodings.items():
        known = {length: losses(study, label, length) for length in study.lengths("suffix")}
        mean = {n: math.fsum(x.values()) / len(x) for n, x in known.items() if x}
        found.append(
            Gains(
                label,
                len(runs),
                _gains(study, values, label),
                study.usable_length(label),
                _usable_over(study, values, label),
                {share: reaches[share][label] for share in SHARES},
                fit_power_law(mean, study.train_length),
            )
        )
    return found


def gains_csv(study: Study, found: Sequence[Gains]) -> str:
    """One quantity a line, with a header; gains, gamma and residual in nats per token, the rest in
    tokens but for beta, which has no unit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for own in found:
        extension = study.encodings[own.label][0].extension or "none"
        for quantity, length, value, documents, seeds, note in _csv_lines(own):
            ends = [(x.low, x.high) if x else (None, None) for x in (documents, seeds)]
            writer.writerow([
                own.label, extension, quantity, length, value, *ends[0], *ends[1], own.seeds, note
            ])  # fmt: skip
    return out.getvalue()


Line = tuple[str, int | None, float | None, Interval | None, Interval | None, str]


def _csv_lines(own: Gains) -> list[Line]:
    lines: list[Line] = [
        ("context gain", gain.length, gain.value, gain.over_documents, gain.over_seeds, gain.reason)
        for gain in own.gains
    ]
    over = own.usable_over
    interval, note = (None, over) if isinstance(over, str) else (over, "")
    lines.append(("usable length", None, own.usable, interval, None, note))
    for share, reaches in own.recl.items():
        name = f"RECL r={share:g}"
        if isinstance(reaches, str):
            lines.append((name, None, None, None, None, reaches))
            continue
        for seed, reach in reaches.items():
            note = f"seed {seed}"
            note += ", still gaining at the longest length it is defined at" if reach.open else ""
            lines.append((name, None, reach.length, None, None, note))
    fit = own.power_law
    if isinstance(fit, str):
        return [*lines, ("power law", None, None, None, None, fit)]
    note = f"fitted to the mean loss over seeds at {fit.lengths} lengths up to the train length"
    fitted = {"alpha": fit.alpha, "beta": fit.beta, "gamma": fit.gamma, "residual": fit.residual}
    return lines + [
        (f"power law {name}", None, value, None, None, note) for name, value in fitted.items()
    ]


def _gains(study: Study, values: Values, label: str) -> list[Gain]:
    short = losses(study, label, study.train_length)
    if not short:
        return []
    longer = [n for n in study.lengths("suffix") if n > study.train_length]
    known = {n: [s for s in losses(study, label, n) if s in short] for n in longer}
    known = {n: shared for n, shared in known.items() if shared}
    intervals: list[Interval | None] = [None] * len(known)
    why = values.missing.get(label, "")
    if not why:
        own = study.train_length
        changes = [
            mean_sums(values, label, own, shared) - mean_sums(values, label, n, shared)
            for n, shared in known.items()
        ]
        intervals, why = document_intervals(changes, values)
    gains = []
    for (length, shared), interval in zip(known.items(), intervals, strict=True):
        long = losses(study, label, length)
        differences = [short[seed] - long[seed] for seed in shared]
        test = paired(differences) if len(differences) > 1 else None
        gains.append(
            Gain(
                length,
                math.fsum(differences) / len(differences),
                interval,
                Interval(test.low, test.high) if test else None,
                "" if interval else f"no interval over documents: {why}",
            )
        )
    return gains


def _usable_over(study: Study, values: Values, label: str) -> Interval | str:
    documents, targets = values.targets()
    if label in values.missing:
        return values.missing[label]
    if documents < LEAST_DOCUMENTS:
        return f"{documents} documents, and an interval over documents needs {LEAST_DOCUMENTS}"
    lengths = study.lengths("suffix")
    known = {n: found for n in lengths if (found := losses(study, label, n))}
    if min(known, default=math.inf) > study.train_length:
        return "no loss within the train length"
    sums = np.stack([mean_sums(values, label, n, found) for n, found in known.items()], axis=1)
    drawn = np.full((RESAMPLES, len(lengths)), np.inf)
    places = [place for place, n in enumerate(lengths) if n in known]
    drawn[:, places] = resampled_ratios(sums, np.full(documents, float(targets)))
    usable = usable_lengths(lengths, drawn, study.train_length)
    return Interval(*expanded_percentile(usable.astype(np.float64), documents))


def _reaches(study: Study, values: Values, share: float) -> dict[str, dict[int, Reach] | str]:
    """RECL by label, one for each seed that all of the group have; the group of a seed are its
    runs under every encoding whose nats are kept."""
    lengths = study.lengths("suffix")
    found: dict[str, dict[int, Reach] | str] = dict(values.missing)
    group = []
    for label in study.encodings:
        if label not in found and (label, lengths[0]) not in values.nats:
            found[label] = f"not defined at {lengths[0]}, where RECL starts"
        elif label not in found:
            group.append(label)
    seeds = [
        seed
        for seed in (values.nats[group[0], lengths[0]] if group else ())
        if all(seed in values.nats[label, n] for label in group for n in _defined(values, label))
    ]
    found |= {label: {} if seeds else "no seed that all encodings have" for label in group}
    for seed in seeds:
        nats = {
            label: {n: values.nats[label, n][seed].ravel() for n in _defined(values, label)}
            for label in group
        }
        for label, reach in effective_lengths(nats, lengths, share).items():
            reaches = found[label]
            assert isinstance(reaches, dict)
            reaches[seed] = reach
    return found


def _defined(values: Values, label: str) -> list[int]:
    return [length for known, length in values.nats if known == label]
