"""All length protocols on one decoder; one row per protocol and length.

Numbers: loss = nats / scored targets, perplexity = exp(loss), bits_per_byte = nats / (ln 2 x UTF-8
bytes of the scored targets), standard_error = that of the mean over documents.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.evaluate.documents import Documents
from pipeline.evaluate.means import standard_error
from pipeline.evaluate.score import Scorer
from pipeline.evaluate.steps import Nats, Row, Step, Values, common_fields
from pipeline.evaluate.windows import Window, non_overlapping, restricted, sliding, suffix

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
class LengthStep:
    """One protocol at one length, on these documents; `stride` where windows overlap."""

    protocol: str
    length: int
    stride: int | None
    windows: list[Window]
    documents: Documents

    @property
    def key(self) -> str:
        """`suffix-128`."""
        return f"{self.protocol.replace(' ', '-')}-{self.length}"

    @property
    def tokens(self) -> int:
        """Tokens it shows the model in all."""
        return sum(window.length for window in self.windows)

    def measure(self, config: Config, scorer: Scorer) -> tuple[Row, Values]:
        """Score the windows, or say why the encoding is not defined at this length."""
        row = self.unmeasured(config, scorer.precision)
        try:
            scorer.decoder.check_length(self.length)
        except ConfigError as error:
            return {**row, "reason": str(error)}, {}
        nats = scorer.score(self.windows, self.documents.tokens)
        if not np.isfinite(nats).all():
            return {**row, "reason": "its loss is not a finite number at this length"}, {}
        return {**row, **self._numbers(nats)}, {"nats": nats.astype(np.float32)}

    def unmeasured(self, config: Config, precision: str) -> Row:
        """The row without its numbers, as of a length that is not defined."""
        suffix_tokens = config.evaluate.suffix_tokens
        return {
            "key": self.key,
            "protocol": self.protocol,
            "length": self.length,
            "defined": False,
            "reason": None,
            "loss": None,
            "perplexity": None,
            "bits_per_byte": None,
            "standard_error": None,
            "scored_tokens": 0,
            "documents": len(self.documents.tokens),
            "suffix_tokens": suffix_tokens if self.protocol in SUFFIX_PROTOCOLS else None,
            "stride": self.stride,
            "split": self.documents.split,
            "precision": precision,
            "text_sha256": self.documents.text_sha256,
            "document_ids": self.documents.ids,
            **common_fields(config),
        }

    def _numbers(self, nats: Nats) -> Row:
        means = _document_means(self.windows, nats)
        size = _scored_bytes(self.windows, self.documents)
        return {
            "defined": True,
            **_loss(float(nats.sum() / len(nats))),
            "bits_per_byte": float(nats.sum()) / (math.log(2.0) * size),
            "standard_error": standard_error(means),
            "scored_tokens": len(nats),
        }


def _loss(loss: float) -> Row:
    """A loss in nats per token with its perplexity, null where no float holds it."""
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700.0 else None}


def suffix_plan(config: Config, documents: Documents) -> list[LengthStep]:
    """The suffix loss at every length of `eval_lengths`."""
    targets = config.evaluate.suffix_tokens
    return [
        LengthStep("suffix", length, None, suffix(documents.sizes, length, targets), documents)
        for length in config.eval_lengths
    ]


def plan(config: Config, documents: Documents) -> list[LengthStep]:
    """The whole suite, in the order it is run.

    The protocols that score whole spans use the first `sliding_documents` documents only.
    """
    own, targets = config.train_length, config.evaluate.suffix_tokens
    steps = suffix_plan(config, documents)
    # Stride 1 would be the window exactly; this is within a sixteenth of the suffix of it.
    stride = max(1, targets // 16)
    control = restricted(documents.sizes, own, stride, targets)
    steps.append(LengthStep("window control", own, stride, control, documents))
    some = documents.first(config.evaluate.sliding_documents)
    for length in config.eval_lengths:
        steps += [_whole_spans(config, name, length, some) for name in config.evaluate.protocols]
    return steps


def _whole_spans(config: Config, protocol: str, length: int, documents: Documents) -> LengthStep:
    """A protocol that scores all targets of the span."""
    if protocol == "non-overlapping":
        pieces = non_overlapping(documents.sizes, length, documents.span)
        return LengthStep(protocol, length, None, pieces, documents)
    stride = stride_of(length, config.evaluate.stride_fraction)
    windows = sliding(documents.sizes, length, stride, documents.span)
    return LengthStep(protocol, length, stride, windows, documents)


def per_position(steps: Sequence[Step], done: Mapping[str, tuple[Row, Values]]) -> Row | None:
    """The per-position row at the longest length that the non-overlapping protocol gave, if any.

    `done`: row and values of steps by key.
    """
    pieces = [s for s in steps if isinstance(s, LengthStep) and s.protocol == "non-overlapping"]
    defined = [step for step in pieces if done[step.key][0]["defined"]]
    if not defined:
        return None
    last = max(defined, key=lambda step: step.length)
    row, values = done[last.key]
    return per_position_row(row, last.windows, values["nats"])


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
    mean = np.stack(pieces).mean(axis=0, dtype=np.float64)
    return {
        **row,
        "key": f"per-position-{length}",
        "protocol": "per-position",
        **_loss(float(mean.mean())),
        "bits_per_byte": None,
        "standard_error": None,
        "scored_tokens": sum(len(piece) for piece in pieces),
        "bin": width,
        "losses": [float(mean[i : i + width].mean()) for i in range(0, length, width)],
    }


def run_suite(
    config: Config,
    scorer: Scorer,
    steps: Sequence[Step],
    known: Mapping[str, tuple[Row, Values]] | None = None,
) -> Iterator[tuple[Row, Values]]:
    """Every row with its values, step by step; per-position, from what these gave, comes last.

    What `known` holds, by key, is handed on as it is and not measured again; it must be the same on
    all ranks.
    """
    done: dict[str, tuple[Row, Values]] = {}
    for step in steps:
        if known and step.key in known:
            done[step.key] = known[step.key]
            scorer.progress(step.tokens)
        else:
            done[step.key] = step.measure(config, scorer)
        yield done[step.key]
    row = per_position(steps, done)
    if row is not None:
        yield row, {}
