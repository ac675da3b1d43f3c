"""Evaluation numbers against each token re-scored alone, in fp64."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config.schema import Config
from pipeline.errors import DataError
from pipeline.evaluate.documents import Documents, choose_documents
from pipeline.evaluate.score import Scorer, batches_of
from pipeline.evaluate.suite import plan, run_suite, stride_of
from pipeline.evaluate.windows import Window, suffix
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.parallel.mesh import Mesh
from pipeline.training.start import build_decoder
from tests.distributed.toy import POSITIONS, oracle_of, scattered, toy_config
from tests.oracles.decoder import OracleDecoder

SPAN = 42


def toy_documents() -> Documents:
    draw = np.random.default_rng(1)
    tokens = tuple(draw.integers(0, 50, n) for n in (43, 44, 60))
    return Documents(tokens, SPAN, np.arange(50) % 4, "test")


def toy_evaluation(position: str) -> tuple[Config, Decoder, Documents]:
    config = toy_config(position)
    config.evaluate.suffix_tokens, config.evaluate.stride_fraction = 5, 0.5
    return config, scattered(build_decoder(config)), toy_documents()


def rows_of(config: Config, decoder: Decoder, documents: Documents) -> list[dict[str, Any]]:
    scorer = Scorer(decoder, Mesh(), Exchange(), torch.device("cpu"), batch_tokens=64)
    return [row for row, _ in run_suite(config, scorer, plan(config, documents))]


def alone(exact: OracleDecoder, document: np.ndarray, start: int, target: int) -> float:
    """Nats of one target given tokens [start, target), in fp64; nothing batched or tiled."""
    shown = torch.from_numpy(document[start : target + 1])
    return float(exact.nats(shown[:-1], shown[1:])[-1])


@pytest.mark.parametrize("position", POSITIONS)
def test_every_protocol_equals_brute_force(position: str) -> None:
    config, decoder, documents = toy_evaluation(position)
    rows = rows_of(config, decoder, documents)
    exact = oracle_of(config, decoder)

    def mean(length: int, stride: int | None, targets: int, restart: bool, back: bool) -> float:
        losses = []
        with torch.no_grad():
            for document in documents.tokens:
                n = len(document)
                for t in range(n - targets, n):
                    done = t - (n - targets)  # targets scored before this one
                    if restart:  # non-overlapping
                        start = n - 1 - targets + done // length * length
                    elif back:  # window control
                        assert stride is not None
                        stop = min(n - 1 - targets + (done // stride + 1) * stride, n - 1)
                        start = stop - length
                    elif stride is None:  # suffix
                        start = n - 1 - length
                    else:  # sliding
                        first = n - 1 - targets
                        extra = max(0, done + 1 - length)
                        stop = min(first + length + math.ceil(extra / stride) * stride, n - 1)
                        start = max(first, stop - length)
                    losses.append(alone(exact, document, start, t))
        return float(np.mean(losses))

    losses = {(row["protocol"], row["length"]): row["loss"] for row in rows}
    assert abs(losses["window control", 21] - losses["suffix", 21]) > 1e-3
    checked = 0
    for row in rows:
        if row["protocol"] == "per-position" or not row["defined"]:
            continue
        targets = 5 if row["protocol"] in ("suffix", "window control") else SPAN
        expected = mean(
            row["length"],
            row["stride"],
            targets,
            row["protocol"] == "non-overlapping",
            row["protocol"] == "window control",
        )
        assert row["loss"] == pytest.approx(expected, abs=1e-5), row["protocol"]
        assert row["scored_tokens"] == targets * 3
        assert row["perplexity"] == pytest.approx(math.exp(expected), rel=1e-4)
        checked += 1
    assert checked == (7 if position == "learned" else 10)


def test_bits_per_byte_and_standard_error() -> None:
    config, decoder, documents = toy_evaluation("rope")
    row = rows_of(config, decoder, documents)[0]
    with torch.no_grad():
        exact = oracle_of(config, decoder)
        losses = [
            [alone(exact, d, len(d) - 1 - 8, t) for t in range(len(d) - 5, len(d))]
            for d in documents.tokens
        ]
    size = sum(int((d[-5:] % 4).sum()) for d in documents.tokens)
    assert row["bits_per_byte"] == pytest.approx(np.sum(losses) / (math.log(2) * size), rel=1e-5)
    means = [np.mean(one) for one in losses]
    assert row["standard_error"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(3), rel=1e-4)


def test_protocols_over_whole_spans_can_use_fewer_documents() -> None:
    config, decoder, documents = toy_evaluation("rope")
    config.evaluate.sliding_documents = 2
    rows = rows_of(config, decoder, documents)
    used = {(row["protocol"], row["documents"]) for row in rows}
    whole = {(name, 2) for name in ("sliding", "non-overlapping", "per-position")}
    assert used == {("suffix", 3), ("window control", 3)} | whole
    assert len({row["text_sha256"] for row in rows}) == 2


def test_rows_not_measured_yet_say_all_that_makes_them_comparable() -> None:
    config, decoder, documents = toy_evaluation("rope")
    config.extension = {"name": "interpolation", "scale": 2.0}
    measured = [r for r in rows_of(config, decoder, documents) if r["protocol"] != "per-position"]
    expected = [step.unmeasured(config, "fp32") for step in plan(config, documents)]
    numbers = {"defined", "loss", "perplexity", "bits_per_byte", "standard_error", "scored_tokens"}
    for row, before in zip(measured, expected, strict=True):
        assert {k: v for k, v in row.items() if k not in numbers} == {
            k: v for k, v in before.items() if k not in numbers
        }
        assert (row["extension"], row["extension_settings"]) == ("interpolation", "scale=2")


def test_beyond_the_learned_table_is_not_defined() -> None:
    config, decoder, documents = toy_evaluation("learned")
    rows = rows_of(config, decoder, documents)
    beyond = [row for row in rows if row["length"] == 42]
    assert len(beyond) == 3
    for row in beyond:
        assert not row["defined"] and row["loss"] is None
        assert "not defined beyond 21 tokens" in row["reason"]
    assert [row["length"] for row in rows if row["protocol"] == "per-position"] == [21]


def test_per_position_averages_whole_pieces_only() -> None:
    config, decoder, documents = toy_evaluation("none")
    config.eval_lengths = [8, 20]
    rows = rows_of(config, decoder, documents)
    row = rows[-1]
    assert row["protocol"] == "per-position" and row["length"] == 20 and row["bin"] == 1
    exact = oracle_of(config, decoder)
    expected = []
    with torch.no_grad():
        for place in range(20):
            values = []
            for d in documents.tokens:
                first = len(d) - 1 - SPAN
                values += [alone(exact, d, s, s + place + 1) for s in (first, first + 20)]
            expected.append(np.mean(values))
    assert row["losses"] == pytest.approx(expected, abs=1e-5)
    assert row["scored_tokens"] == 20 * 6


@pytest.mark.parametrize("batch_tokens", [1, 24, 1000])
def test_ranks_are_those_of_each_target_alone(batch_tokens: int) -> None:
    """Windows of several lengths with several targets each: values stand at their own target's."""
    config, decoder, documents = toy_evaluation("rope")
    exact = oracle_of(config, decoder)
    windows = [Window(2, 0, 59, 3), Window(0, 4, 12, 1), Window(1, 0, 43, 8), Window(0, 0, 8, 2)]
    scorer = Scorer(decoder, Mesh(), Exchange(), torch.device("cpu"), batch_tokens)
    choices = np.array([0, 3, 7, 20, 21, 49])
    found = scorer.standings(windows, documents.tokens, choices)
    place = 0
    for window in windows:
        document = documents.tokens[window.document]
        for target in range(window.stop - window.scored + 1, window.stop + 1):
            shown = torch.from_numpy(document[window.start : target])
            every = torch.stack([exact.nats(shown, torch.cat([shown[1:], torch.tensor([i])]))[-1]
                                 for i in range(50)])  # fmt: skip
            own = float(every[document[target]])
            assert found.nats[place] == pytest.approx(own, abs=1e-4)
            assert found.rank[place] == 1 + int((every < own).sum())
            before = int((every[choices] < own).sum())
            assert found.among[place] == before + int(document[target] in choices)
            place += 1
    assert place == len(found.nats) == 14
    assert (scorer.score(windows, documents.tokens) == found.nats).all()


def test_batches_hold_every_window_once() -> None:
    windows = suffix([30] * 7, 8, 5) + suffix([30] * 3, 20, 5)
    batches = batches_of(windows, 24)
    assert sorted(i for batch in batches for i in batch) == list(range(10))
    assert max(len(batch) for batch in batches) == 3
    assert all(len({windows[i].length for i in batch}) == 1 for batch in batches)


def test_documents_are_long_enough_and_in_an_order_of_their_content() -> None:
    class Toy:
        def __init__(self, documents: list[np.ndarray]) -> None:
            self.documents = documents

        def document(self, i: int, /) -> np.ndarray:
            return self.documents[i]

        def document_lengths(self) -> np.ndarray:
            return np.array([len(d) for d in self.documents])

    documents = [np.full(n, n) for n in (5, 9, 10, 30, 12)]
    facts: dict[str, Any] = {"token_bytes": np.ones(50, int), "split": "test"}
    chosen = choose_documents(Toy(documents), 9, 2, **facts)
    other = choose_documents(Toy(documents[::-1]), 9, 2, **facts)
    assert len(chosen.tokens) == 2 and min(chosen.sizes) >= 10
    assert chosen.sizes == other.sizes and chosen.text_sha256 == other.text_sha256
    with pytest.raises(DataError, match=r"the 31 tokens .* the longest of 5 has 30"):
        choose_documents(Toy(documents), 30, 2, **facts)
    with pytest.raises(
        DataError,
        match=r"^the test split is empty: add documents or raise data\.test_fraction$",
    ):
        choose_documents(Toy([]), 30, 2, **facts)


def test_strides() -> None:
    assert [stride_of(n, 0.25) for n in (1, 3, 4, 128)] == [1, 1, 1, 32]


def test_a_loss_that_is_no_number_is_not_defined_and_not_kept() -> None:
    """Instead of a number in a row, or none and no row."""
    config, decoder, documents = toy_evaluation("rope")
    with torch.no_grad():
        decoder.norm.gain.fill_(math.nan)
    scorer = Scorer(decoder, Mesh(), Exchange(), torch.device("cpu"), batch_tokens=64)
    found = list(run_suite(config, scorer, plan(config, documents)))
    assert len(found) == 10
    for row, values in found:
        assert not values and row["loss"] is None and not row["defined"]
        assert "not a finite number" in row["reason"]
