"""All length protocols on one decoder; one row per protocol and length.

Numbers: loss = nats / scored targets, perplexity = exp(loss), bits_per_byte = nats / (ln 2 x UTF-8
bytes of the scored targets), standard_error = that of the mean over documents.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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


def _row(
    config: Config,
    documents: Documents,
    protocol: str,
    length: int,
    *,
    stride: int | None,
    windows: Sequence[Window] = (),
    nats: Nats | None = None,
    reason: str | None = None,
) -> Row:
    row: Row = {
        "protocol": protocol,
        "length": length,
        "defined": nats is not None,
        "reason": reason,
        "loss": None,
        "perplexity": None,
        "bits_per_byte": None,
        "standard_error": None,
        "scored_tokens": 0,
        "documents": len(documents.tokens),
        "suffix_tokens": config.evaluate.suffix_tokens if protocol in SUFFIX_PROTOCOLS else None,
        "stride": stride,
        "split": documents.split,
        "text_sha256": documents.text_sha256,
        "position": config.position["name"],
        "seed": config.seed,
        "train_length": config.train_length,
    }
    if nats is None:
        return row
    means = _document_means(windows, nats)
    loss = float(nats.sum() / len(nats))
    row["loss"], row["scored_tokens"] = loss, len(nats)
    row["perplexity"] = math.exp(loss) if loss < 700.0 else None
    row["bits_per_byte"] = float(nats.sum()) / (math.log(2.0) * _scored_bytes(windows, documents))
    if len(means) > 1:
        row["standard_error"] = float(means.std(ddof=1) / math.sqrt(len(means)))
    return row


def _measure(
    config: Config,
    scorer: Scorer,
    documents: Documents,
    protocol: str,
    length: int,
    windows: list[Window],
    stride: int | None = None,
) -> tuple[Row, Nats | None]:
    """Score `windows`, or say why the encoding is not defined at `length`."""
    try:
        scorer.decoder.position.check_length(length)
    except ConfigError as error:
        return (
            _row(config, documents, protocol, length, stride=stride, reason=str(error)),
            None,
        )
    nats = scorer.score(windows, documents.tokens)
    row = _row(config, documents, protocol, length, stride=stride, windows=windows, nats=nats)
    return row, nats


def suffix_rows(config: Config, scorer: Scorer, documents: Documents) -> Iterator[Row]:
    """The suffix loss at every length of `eval_lengths`."""
    for length in config.eval_lengths:
        windows = suffix(documents.sizes, length, config.evaluate.suffix_tokens)
        yield _measure(config, scorer, documents, "suffix", length, windows)[0]


def plan(config: Config, documents: Documents) -> list[tuple[str, int, int | None, list[Window]]]:
    """(protocol, length, stride, windows) of the whole suite, in the order it is run."""
    sizes, span = documents.sizes, documents.span
    own, targets = config.train_length, config.evaluate.suffix_tokens
    fraction = config.evaluate.stride_fraction
    steps: list[tuple[str, int, int | None, list[Window]]] = [
        ("suffix", length, None, suffix(sizes, length, targets)) for length in config.eval_lengths
    ]
    stride = min(stride_of(own, fraction), targets)
    steps.append(("window control", own, stride, restricted(sizes, own, stride, targets)))
    for length in config.eval_lengths:
        stride = stride_of(length, fraction)
        steps.append(("sliding", length, stride, sliding(sizes, length, stride, span)))
        pieces = non_overlapping(sizes, length, span)
        steps.append(("non-overlapping", length, None, pieces))
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
    for protocol, length, stride, windows in plan(config, documents):
        row, nats = _measure(config, scorer, documents, protocol, length, windows, stride)
        yield row, nats
        if protocol == "non-overlapping" and nats is not None:
            last = (row, windows, nats)
    if last is not None:
        yield per_position_row(*last), None
