"""All length protocols on one decoder; one row per protocol and length.

Numbers: loss = nats / scored targets, perplexity = exp(loss), bits_per_byte = nats / (ln 2 x UTF-8
bytes of the scored targets), standard_error = that of the mean over documents.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config.label import own_settings
from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.evaluate.documents import Documents
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.windows import Window, non_overlapping, restricted, sliding, suffix

Row = dict[str, Any]
Nats = npt.NDArray[np.float64]
SUFFIX_PROTOCOLS = ("suffix", "window control")  # score the last suffix_tokens targets only


def stride_of(length: int, fraction: float) -> int:
    """The stride of windows of `length` tokens."""
    return max(1, int(length * fraction))


def _scored_bytes(windows: Sequence[Window], documents: Documents) -> int:
    return sum(
        int(
            documents.token_bytes[documents.tokens[w.document]][
                w.stop - w.scored + 1 : w.stop + 1
            ].sum()
        )
        for w in windows
    )


def _document_means(windows: Sequence[Window], nats: Nats) -> Nats:
    """Mean nats of each document's scored targets."""
    owner = np.repeat([w.document for w in windows], [w.scored for w in windows])
    return np.bincount(owner, weights=nats) / np.bincount(owner)


@dataclass(frozen=True)
class Step:
    """One protocol at one length, on these documents; `stride` where windows overlap."""

    protocol: str
    length: int
    stride: int | None
    windows: list[Window]
    documents: Documents


def _row(
    config: Config, step: Step, precision: str, nats: Nats | None, reason: str | None = None
) -> Row:
    documents = step.documents
    row: Row = {
        "protocol": step.protocol,
        "length": step.length,
        "defined": nats is not None,
        "reason": reason,
        "loss": None,
        "perplexity": None,
        "bits_per_byte": None,
        "standard_error": None,
        "scored_tokens": 0,
        "documents": len(documents.tokens),
        "suffix_tokens": (
            config.evaluate.suffix_tokens if step.protocol in SUFFIX_PROTOCOLS else None
        ),
        "stride": step.stride,
        "split": documents.split,
        "precision": precision,
        "text_sha256": documents.text_sha256,
        "position": config.position["name"],
        "extension": config.extension["name"],
        "extension_settings": own_settings(config.extension),
        "seed": config.seed,
        "train_length": config.train_length,
    }
    if nats is not None and not np.isfinite(nats).all():
        row["defined"], row["reason"] = False, "its loss is not a finite number at this length"
    if not row["defined"]:
        return row
    assert nats is not None
    means = _document_means(step.windows, nats)
    loss, size = float(nats.sum() / len(nats)), _scored_bytes(step.windows, documents)
    row["loss"], row["scored_tokens"] = loss, len(nats)
    row["perplexity"] = math.exp(loss) if loss < 700.0 else None
    row["bits_per_byte"] = float(nats.sum()) / (math.log(2.0) * size)
    if len(means) > 1:
        row["standard_error"] = float(means.std(ddof=1) / math.sqrt(len(means)))
    return row


def measure(config: Config, scorer: Scorer, step: Step) -> tuple[Row, Nats | None]:
    """Score one step, or say why the encoding is not defined at its length."""
    try:
        scorer.decoder.check_length(step.length)
    except ConfigError as error:
        return _row(config, step, scorer.precision, None, reason=str(error)), None
    nats = scorer.score(step.windows, step.documents.tokens)
    row = _row(config, step, scorer.precision, nats)
    return row, nats if row["defined"] else None


def unmeasured_rows(config: Config, documents: Documents) -> list[Row]:
    """What the rows of the suite will say but for their numbers, which are those of `plan`."""
    precision = config.trainer.precision
    return [_row(config, step, precision, None) for step in plan(config, documents)]


def suffix_plan(config: Config, documents: Documents) -> list[Step]:
    """The suffix loss at every length of `eval_lengths`."""
    targets = config.evaluate.suffix_tokens
    return [
        Step("suffix", length, None, suffix(documents.sizes, length, targets), documents)
        for length in config.eval_lengths
    ]


def plan(config: Config, documents: Documents) -> list[Step]:
    """The whole suite, in the order it is run.

    The protocols that score whole spans use the first `sliding_documents` documents only.
    """
    own, targets = config.train_length, config.evaluate.suffix_tokens
    fraction = config.evaluate.stride_fraction
    steps = suffix_plan(config, documents)
    # Stride 1 would be the window exactly; this is within a sixteenth of the suffix of it.
    stride = max(1, targets // 16)
    control = restricted(documents.sizes, own, stride, targets)
    steps.append(Step("window control", own, stride, control, documents))
    some = documents.first(config.evaluate.sliding_documents)
    sizes, span = some.sizes, some.span
    for length in config.eval_lengths:
        stride = stride_of(length, fraction)
        windows = sliding(sizes, length, stride, span)
        steps.append(Step("sliding", length, stride, windows, some))
        pieces = non_overlapping(sizes, length, span)
        steps.append(Step("non-overlapping", length, None, pieces, some))
    return steps


def per_position_row(row: Row, windows: Sequence[Window], nats: Nats, bins: int = 64) -> Row:
    """Mean nats at each position of whole pieces of `length` tokens, averaged in up to `bins` bins.

    `row` and `nats` are those of the non-overlapping protocol at this length; pieces that are cut
    short are left out, since later positions would then average fewer documents.
    """
    length = row["length"]
    pieces, start = [], 0
    for window in windows:
        if window.scored == length:
            pieces.append(nats[start : start + length])
        start += window.scored
    width = -(-length // bins)
    mean = np.stack(pieces).mean(axis=0)
    losses = [float(mean[i : i + width].mean()) for i in range(0, length, width)]
    scored = sum(len(piece) for piece in pieces)
    loss = float(np.stack(pieces).mean())
    return {
        **row,
        "protocol": "per-position",
        "loss": loss,
        "perplexity": math.exp(loss) if loss < 700.0 else None,
        "bits_per_byte": None,
        "standard_error": None,
        "scored_tokens": scored,
        "bin": width,
        "losses": losses,
    }


def run_suite(
    config: Config, scorer: Scorer, documents: Documents
) -> Iterator[tuple[Row, Nats | None]]:
    """Every row with the nats of its scored targets; per-position at the longest defined length."""
    last: tuple[Row, Sequence[Window], Nats] | None = None
    for step in plan(config, documents):
        row, nats = measure(config, scorer, step)
        yield row, nats
        if step.protocol == "non-overlapping" and nats is not None:
            last = (row, step.windows, nats)
    if last is not None:
        yield per_position_row(*last), None
