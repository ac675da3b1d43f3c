"""Every two encodings at every length: by how much one is better, and how sure that is.

Two sources of variation are told apart. Over documents: the same trained models on other text of
this kind. Over seeds: models trained again, on the same text. Only the second speaks of encodings.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from pipeline.evaluate.bootstrap import LEAST_DOCUMENTS, intervals
from pipeline.evaluate.seeds import holm, paired
from pipeline.report.collect import Study
from pipeline.report.lineage import one_origin
from pipeline.report.values import Nats, Values, losses

CSV_COLUMNS = (
    "length", "encoding", "against", "difference", "low_over_documents", "high_over_documents",
    "low_over_seeds", "high_over_seeds", "p", "p_holm", "documents", "seeds", "reason",
)  # fmt: skip
SURE = 0.05  # a corrected p below this is called a difference


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, in the units of what it is of."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference has the same sign in all of it."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Pair:
    """Encoding `a` against `b` at one length, over the seeds that both have; `a` is the better.

    `difference` is suffix loss of `a` minus that of `b`, nats per token; None where it has no
    interval at all. `p` is of the paired t-test over seeds, `p_holm` corrected for all pairs of the
    length. `reason` says why there is no interval over documents, or no p of several seeds, or
    nothing.
    """

    length: int
    a: str
    b: str
    difference: float | None
    over_documents: Interval | None
    over_seeds: Interval | None
    p: float | None
    p_holm: float | None
    documents: int
    seeds: int
    reason: str


def find_pairs(study: Study, values: Values) -> list[Pair]:
    """All pairs of encodings at all lengths that both are defined at.

    By length, then by rank: the best encoding against the next best first.
    """
    found: list[Pair] = []
    for length in study.lengths("suffix"):
        ranked = ranking(study, length)
        pairs = [_over_seeds(study, length, a, b) for a, b in combinations(ranked, 2)]
        found += _corrected(_over_documents(pairs, values))
    return found


def ranking(study: Study, length: int) -> list[str]:
    """The encodings that are defined at this length, the best first."""
    known = {label: losses(study, label, length) for label in study.encodings}
    means = {label: math.fsum(x.values()) / len(x) for label, x in known.items() if x}
    return sorted(means, key=lambda label: means[label])


def document_intervals(sums: Sequence[Nats], values: Values) -> tuple[list[Interval | None], str]:
    """Intervals over documents of differences of nats [documents], and why some have none."""
    if not sums:
        return [], ""
    documents, targets = values.targets()
    if documents < LEAST_DOCUMENTS:
        why = f"{documents} documents, and an interval over documents needs {LEAST_DOCUMENTS}"
        return [None] * len(sums), why
    tokens = np.full(documents, float(targets))
    low, high = intervals(np.stack(sums, axis=1), tokens)
    found = [
        Interval(float(a), float(b)) if math.isfinite(a) and math.isfinite(b) else None
        for a, b in zip(low, high, strict=True)
    ]
    return found, "too few documents differ"


def mean_sums(values: Values, label: str, length: int, seeds: Iterable[int]) -> Nats:
    """[documents] nats of each document, averaged over these seeds."""
    mean: Nats = np.mean([values.sums[label, length][seed] for seed in seeds], axis=0)
    return mean


def pairs_csv(pairs: Sequence[Pair]) -> str:
    """One pair a line, with a header; differences and intervals in nats per token."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for pair in pairs:
        ends = [
            end
            for interval in (pair.over_documents, pair.over_seeds)
            for end in ((interval.low, interval.high) if interval else (None, None))
        ]
        writer.writerow([
            pair.length, pair.a, pair.b, pair.difference, *ends, pair.p, pair.p_holm,
            pair.documents, pair.seeds, pair.reason,
        ])  # fmt: skip
    return out.getvalue()


def _over_seeds(study: Study, length: int, a: str, b: str) -> Pair:
    """What the seeds that both have tell; the better of the two comes first."""
    of_a, of_b = losses(study, a, length), losses(study, b, length)
    shared = [seed for seed in of_a if seed in of_b]
    cell = study.cell(a, "suffix", length)
    documents = cell.documents if cell else 0
    pair = Pair(length, a, b, None, None, None, None, None, documents, len(shared), "")
    if not shared:
        return replace(pair, reason="no seed in common")
    differences = [of_a[seed] - of_b[seed] for seed in shared]
    if math.fsum(differences) > 0.0:
        pair, differences = replace(pair, a=b, b=a), [-value for value in differences]
    if len(shared) == 1:
        return replace(pair, difference=differences[0])
    test = paired(differences)
    pair = replace(pair, difference=test.mean, over_seeds=Interval(test.low, test.high))
    tied = [label for label in (a, b) if one_origin(study.encodings[label])]
    if tied:
        return replace(pair, reason=f"no p: the seeds of {' and of '.join(tied)} have one origin")
    return replace(pair, p=test.p)


def _over_documents(pairs: Sequence[Pair], values: Values) -> list[Pair]:
    """The same pairs with their intervals over documents; without any interval, no difference."""
    kept = {pair: _document_differences(pair, values) for pair in pairs}
    sums = {pair: found for pair, found in kept.items() if not isinstance(found, str)}
    found, why = document_intervals(list(sums.values()), values)
    interval_of = dict(zip(sums, found, strict=True))
    done = []
    for pair in pairs:
        interval, reasons = interval_of.get(pair), [pair.reason] if pair.reason else []
        if interval is None and pair.difference is not None:
            lacking = kept[pair]
            lacking = lacking if isinstance(lacking, str) else why
            reasons.append(f"no interval over documents: {lacking}")
        difference = pair.difference if interval or pair.over_seeds else None
        done.append(
            replace(pair, over_documents=interval, reason="; ".join(reasons), difference=difference)
        )
    return done


def _document_differences(pair: Pair, values: Values) -> Nats | str:
    """[documents] nats of `a` minus those of `b`, seeds averaged, or why there are none."""
    for label in (pair.a, pair.b):
        if label in values.missing:
            return values.missing[label]
    if pair.difference is None:
        return pair.reason
    both = values.sums[pair.a, pair.length], values.sums[pair.b, pair.length]
    shared = [seed for seed in both[0] if seed in both[1]]
    of_a, of_b = (mean_sums(values, label, pair.length, shared) for label in (pair.a, pair.b))
    return of_a - of_b


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """The same pairs, all of one length, with p corrected for how many tests these are."""
    tested = [pair for pair in pairs if pair.p is not None]
    corrected = dict(
        zip(tested, holm([pair.p for pair in tested if pair.p is not None]), strict=True)
    )
    return [replace(pair, p_holm=corrected.get(pair)) for pair in pairs]
