"""All probes of a decoder together: what encodings must show, and which tokens are looked at."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config.schema import Config
from pipeline.evaluate.documents import Documents
from pipeline.evaluate.probes.probe import probe_length, probed_lengths, query_places
from pipeline.model.decoder import Decoder
from pipeline.model.plan import as_tested
from tests.distributed.toy import scattered, toy_config

LENGTH, QUERIES, SPAN = 64, 4, 80


def made(position: str, **model: Any) -> tuple[Config, Decoder]:
    """Untrained, of two layers, trained at 21 tokens by what it says."""
    config = toy_config(position)
    config.model = replace(config.model, **model)
    config.evaluate.suffix_tokens, config.eval_lengths = 16, [16, 64]
    torch.manual_seed(2)
    return as_tested(config), Decoder(as_tested(config))


def documents(count: int = 12) -> Documents:
    draw = np.random.default_rng(3)
    tokens = tuple(draw.integers(0, 50, SPAN + 1 + n) for n in range(count))
    return Documents(tokens, SPAN, np.arange(50) % 4, "test")


def rows_of(
    config: Config, decoder: Decoder, probe: str, length: int = LENGTH, queries: int = QUERIES
) -> list[dict[str, Any]]:
    rows = probe_length(decoder, config, documents(), length, queries, lambda tokens: None)
    return [row for row in rows if row["probe"] == probe]


def read(rows: list[dict[str, Any]], layer: int, key: str = "r2") -> float:
    (row,) = [x for x in rows if x["layer"] == layer and x["target"] == "position"]
    return float(row[key])


def test_queries_are_of_the_scored_suffix_and_end_with_the_last() -> None:
    assert query_places(64, 16, 4) == [51, 55, 59, 63]
    assert query_places(64, 16, 16) == list(range(48, 64))
    assert query_places(10, 7, 3) == [5, 7, 9]
    assert query_places(10, 7, 1) == [9]


def test_lengths_are_the_train_length_and_the_longest_that_is_defined() -> None:
    config, decoder = made("learned")
    assert probed_lengths(decoder, config) == [16, 21]
    config, decoder = made("rope")
    assert probed_lengths(decoder, config) == [21, 64]
    config.eval_lengths = [8, 21]
    assert probed_lengths(decoder, config) == [21]


def test_queries_without_content_attend_uniformly() -> None:
    config, decoder = made("none")
    with torch.no_grad():
        for block in decoder.blocks:
            block.attention.qkv.zero_()  # type: ignore[operator, union-attr]
    rows = rows_of(config, decoder, "attention")
    assert len(rows) == 2 * 4
    places = query_places(LENGTH, 16, QUERIES)
    for row in rows:
        assert row["distance"] == pytest.approx(sum(places) / len(places) / 2, abs=1e-4)
        beyond = sum((i - 20) / (i + 1) for i in places) / len(places)
        assert row["beyond"] == pytest.approx(beyond, abs=1e-5)
    flat = rows_of(config, decoder, "resolution")
    assert [row["resolution"] for row in flat] == [0.0] * 8


def test_alibi_without_content_is_its_slopes() -> None:
    """Weights are the slopes' alone, and steeper heads attend nearer and resolve better."""
    config, decoder = made("alibi")
    with torch.no_grad():
        for block in decoder.blocks:
            block.attention.qkv.zero_()  # type: ignore[operator, union-attr]
    rows = rows_of(config, decoder, "attention")[:4]
    n = torch.arange(LENGTH, dtype=torch.float64)
    for head, row in enumerate(rows):
        per_query = []
        for i in query_places(LENGTH, 16, QUERIES):
            weights = (-(4.0 ** -(head + 1)) * n[: i + 1]).softmax(-1)
            per_query.append(float((weights * n[: i + 1]).sum()))
        assert row["distance"] == pytest.approx(sum(per_query) / QUERIES, rel=1e-5)
    found = [row["resolution"] for row in rows_of(config, decoder, "resolution")[:4]]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_position_in_the_input_is_read_from_the_input(position: str) -> None:
    config, decoder = made(position)
    # so that the words are a tenth of the input
    torch.nn.init.normal_(decoder.embedding.weight, 0.0, 0.1 * config.model.width**-0.5)
    if position == "learned":
        torch.nn.init.normal_(decoder.position.table, 0.0, 1.0)  # type: ignore[arg-type]
    rows = rows_of(config, decoder, "decodability", length=21)
    assert [row["layer"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert read(rows, 0) > 0.9
    assert abs(read(rows, 0, "control_r2")) < 0.1


def test_without_an_encoding_the_text_tells_nothing() -> None:
    config, decoder = made("none")
    rows = rows_of(config, decoder, "decodability")
    assert all(abs(read(rows, layer, "control_r2")) < 0.05 for layer in range(3))
    assert abs(read(rows, 0)) < 0.05


def test_without_an_encoding_position_comes_by_the_causal_mask() -> None:
    """Kazemnejad et al. 2023, theorem 1: where the first token differs from the others, the share
    that a mean over all tokens has of it is 1/(i + 1)."""
    config, decoder = made("none")
    torch.nn.init.normal_(decoder.blocks[0].attention.out)  # type: ignore[arg-type, union-attr]
    tokens = np.ones(SPAN + 1, dtype=np.int64)
    tokens[SPAN - LENGTH] = 0
    alike = Documents((tokens,) * 4, SPAN, np.arange(50) % 4, "test")
    rows = probe_length(decoder, config, alike, LENGTH, 2, lambda tokens: None)
    found = {row["layer"]: row for row in rows if row.get("target") == "log position"}
    assert found[0]["r2"] < 0.3
    assert found[1]["r2"] > 0.7 and abs(found[1]["control_r2"]) < 0.05


def test_the_tokens_shown_are_those_of_the_suffix_loss() -> None:
    """The last ones before the last target: other tokens change nothing, one of them does."""
    config, decoder = made("rope")
    scattered(decoder)
    whole = documents(4)

    def distances(tokens: list[np.ndarray]) -> list[float]:
        changed = replace(whole, tokens=tuple(tokens))
        rows = probe_length(decoder, config, changed, LENGTH, 2, lambda tokens: None)
        return [row["distance"] for row in rows if row["probe"] == "attention"]

    before = distances(list(whole.tokens))
    for place, same in ((-1, True), (-2 - LENGTH, True), (-2, False), (-1 - LENGTH, False)):
        tokens = [document.copy() for document in whole.tokens]
        tokens[2][place] = (tokens[2][place] + 7) % 50
        assert (distances(tokens) == before) == same


def test_progress_counts_tokens_and_the_decoder_is_left_as_it_was() -> None:
    config, decoder = made("rope")
    shown: list[int] = []
    probe_length(decoder.train(), config, documents(5), LENGTH, QUERIES, shown.append)
    assert shown == [LENGTH] * 5 and decoder.training
    hooks = [module._forward_pre_hooks for module in decoder.modules()]
    assert not any(hooks)


def test_scores_beyond_all_numbers_are_rows_without_numbers() -> None:
    config, decoder = made("rope")
    with torch.no_grad():
        decoder.blocks[1].attention.qkv.fill_(1e30)  # type: ignore[operator, union-attr]
    attention = rows_of(config, decoder, "attention")
    assert [row["defined"] for row in attention] == [True] * 4 + [False] * 4
    assert "not finite" in attention[-1]["reason"] and attention[-1]["distance"] is None
    states = rows_of(config, decoder, "decodability")
    assert [row["defined"] for row in states] == [True] * 4 + [False] * 2
