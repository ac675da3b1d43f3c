"""Pairs of encodings from made-up runs: what is reported against what is computed by hand."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pipeline.evaluate.bootstrap import intervals
from pipeline.evaluate.means import standard_error
from pipeline.record.metrics import read_rows
from pipeline.report.collect import Study, collect
from pipeline.report.differences import differences_section
from pipeline.report.pairs import Interval, Pair, find_pairs, pairs_csv
from pipeline.report.values import read_values
from tests.report.synthetic import (
    loss_at,
    write_extended,
    write_kept,
    write_rows,
    write_run,
    write_values,
)


def pairs_of(study: Study) -> dict[tuple[str, str, int], Pair]:
    return {(pair.a, pair.b, pair.length): pair for pair in find_pairs(study, read_values(study))}


def nats_of(run: Path, length: int) -> np.ndarray:
    with np.load(run / "evaluation" / "values" / f"suffix-{length}.npz") as file:
        return np.asarray(file["nats"], dtype=np.float64).reshape(32, 64)


def test_two_runs_of_one_seed_have_an_interval_over_documents_and_no_p(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, name) for name in ("rope", "t5")]
    pair = pairs_of(collect(runs))["t5", "rope", 512]
    losses = [loss_at(name, 512, 0) or 0.0 for name in ("t5", "rope")]
    assert pair.difference == pytest.approx(losses[0] - losses[1])
    assert pair.difference is not None and pair.difference < 0.0
    sums = (nats_of(runs[1], 512) - nats_of(runs[0], 512)).sum(axis=1)
    low, high = intervals(sums[:, None], np.full(32, 64.0))[:, 0]
    assert pair.over_documents is not None
    assert (pair.over_documents.low, pair.over_documents.high) == pytest.approx((low, high))
    assert low < pair.difference < high < 0.0
    assert pair.over_documents.excludes_zero
    assert (pair.over_seeds, pair.p, pair.p_holm) == (None, None, None)
    assert (pair.documents, pair.seeds, pair.reason) == (32, 1, "")


def test_seeds_are_compared_seed_by_seed(tmp_path: Path) -> None:
    runs = {
        (name, seed): write_kept(tmp_path, name, seed)
        for name in ("rope", "t5")
        for seed in range(3)
    }
    pair = pairs_of(collect(list(runs.values())))["t5", "rope", 256]
    a, b = ([loss_at(name, 256, seed) or 0.0 for seed in range(3)] for name in ("t5", "rope"))
    expected = ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert pair.p == pytest.approx(expected.pvalue)
    assert pair.over_seeds is not None and pair.over_documents is not None
    assert (pair.over_seeds.low, pair.over_seeds.high) == pytest.approx(
        (interval.low, interval.high)
    )
    assert pair.difference == pytest.approx(np.mean(a) - np.mean(b))
    assert pair.seeds == 3
    # Over documents, each document's nats are averaged over the seeds first.
    changes = [
        nats_of(runs["t5", seed], 256) - nats_of(runs["rope", seed], 256) for seed in range(3)
    ]
    sums = np.mean(changes, axis=0).sum(axis=1)
    low, high = intervals(sums[:, None], np.full(32, 64.0))[:, 0]
    assert (pair.over_documents.low, pair.over_documents.high) == pytest.approx((low, high))


def test_p_is_corrected_for_the_pairs_of_its_length(tmp_path: Path) -> None:
    names = ("learned", "rope", "t5", "alibi")
    study = collect([write_run(tmp_path, name, seed) for name in names for seed in range(3)])
    found = find_pairs(study, read_values(study))
    for length, tests in ((128, 6), (512, 3)):
        some = sorted(
            (pair.p, pair.p_holm) for pair in found
            if pair.length == length and pair.p is not None and pair.p_holm is not None
        )  # fmt: skip
        assert len(some) == tests
        assert some[0][1] == pytest.approx(min(1.0, tests * some[0][0]))
        assert [p for _, p in some] == sorted(p for _, p in some)


def test_only_seeds_that_both_have_are_compared(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, "rope", seed) for seed in (0, 1, 2)]
    runs += [write_kept(tmp_path, "t5", seed) for seed in (1, 2, 3)]
    runs.append(write_kept(tmp_path, "alibi", 7))
    found = pairs_of(collect(runs))
    pair = found["t5", "rope", 512]
    differences = [
        (loss_at("t5", 512, s) or 0.0) - (loss_at("rope", 512, s) or 0.0) for s in (1, 2)
    ]
    assert pair.seeds == 2
    assert pair.difference == pytest.approx(np.mean(differences))
    assert pair.over_documents is not None
    none = found["alibi", "rope", 512]
    assert (none.difference, none.over_documents, none.seeds) == (None, None, 0)
    assert none.reason == "no seed in common"


def test_the_better_one_comes_first_and_undefined_lengths_have_no_pair(tmp_path: Path) -> None:
    study = collect([write_kept(tmp_path, name) for name in ("learned", "rope", "alibi")])
    found = find_pairs(study, read_values(study))
    assert all(pair.difference is not None and pair.difference <= 0.0 for pair in found)
    assert [pair.length for pair in found] == [64] * 3 + [128] * 3 + [256, 512, 1024, 2048]
    assert {(pair.a, pair.b) for pair in found if pair.length > 128} == {("alibi", "rope")}


def test_an_extension_is_an_encoding_like_any_other(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    extended = write_extended(run, "yarn", "scale=4", change=-0.25)
    for rows in (run / "evaluation" / "rows.jsonl", extended):
        write_values(rows)
    pair = pairs_of(collect([run]))["rope + yarn scale=4", "rope", 1024]
    assert pair.difference == pytest.approx(-0.25)
    # The made-up nats differ by a constant only, so there is nothing for documents to vary.
    assert pair.over_documents is not None
    assert pair.over_documents.low == pytest.approx(-0.25, abs=1e-5)


def test_runs_without_nats_are_no_error_and_say_why(tmp_path: Path) -> None:
    old, new = write_run(tmp_path, "rope"), write_kept(tmp_path, "t5")
    study = collect([old, new])
    pair = pairs_of(study)["t5", "rope", 512]
    assert (pair.difference, pair.over_documents) == (None, None)
    assert pair.reason == (
        "no interval over documents: compare/rope-L128-s0 keeps no nats of single targets; "
        "`python -m pipeline evaluate RUN` writes them"
    )
    section = differences_section(study, list(pairs_of(study).values()))
    assert "Not available." in section
    assert "compare/rope-L128-s0 keeps no nats" in section
    assert "<table" not in section


def test_without_nats_seeds_are_still_compared(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, seed) for name in ("rope", "t5") for seed in range(2)]
    pair = pairs_of(collect(runs))["t5", "rope", 512]
    assert pair.difference is not None and pair.over_seeds is not None
    assert pair.over_documents is None
    assert "keeps no nats" in pair.reason


def test_few_documents_have_no_interval(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, row={"documents": 4}) for name in ("rope", "t5")]
    for run in runs:
        write_values(run / "evaluation" / "rows.jsonl")
    pair = pairs_of(collect(runs))["t5", "rope", 512]
    assert pair.reason == (
        "no interval over documents: 4 documents, and an interval over documents needs 8"
    )


def test_where_one_document_alone_differs_there_is_no_interval(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    extended = write_extended(run, "yarn", "scale=4")
    for rows in (run / "evaluation" / "rows.jsonl", extended):
        write_values(rows)
    change_one_document(extended, 512)
    pair = pairs_of(collect([run]))["rope + yarn scale=4", "rope", 512]
    assert (pair.difference, pair.over_documents) == (None, None)
    assert pair.reason == "no interval over documents: too few documents differ"


def change_one_document(rows_path: Path, length: int) -> None:
    """Take a nat from every target of the first of 32 documents, and from the loss its share."""
    rows = read_rows(rows_path)
    row = next(r for r in rows if (r["protocol"], r["length"]) == ("suffix", length))
    path = rows_path.parent / "values" / row["values"]
    with np.load(path) as file:
        nats = file["nats"].copy()
    nats[:64] -= 1.0
    np.savez(path, nats=nats)
    row["loss"] -= 1 / 32
    row["standard_error"] = standard_error(nats.reshape(32, 64).mean(axis=1, dtype=np.float64))
    write_rows(rows_path, rows)


def test_seeds_tested_at_fewer_lengths_count_where_they_were(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, name, seed) for name in ("rope", "t5") for seed in (0, 1)]
    path = runs[0] / "evaluation" / "rows.jsonl"
    write_rows(path, [row for row in read_rows(path) if row["length"] != 512])
    found = pairs_of(collect(runs))
    assert found["t5", "rope", 512].seeds == 1
    assert found["t5", "rope", 512].over_documents is not None
    assert found["t5", "rope", 1024].seeds == 2


def test_the_csv_has_every_pair(tmp_path: Path) -> None:
    names = ("learned", "rope", "t5")
    study = collect([write_kept(tmp_path, name, seed) for name in names for seed in (0, 1)])
    pairs = find_pairs(study, read_values(study))
    rows = list(csv.DictReader(io.StringIO(pairs_csv(pairs))))
    assert len(rows) == len(pairs) == 2 * 3 + 4
    row = next(row for row in rows if (row["length"], row["encoding"]) == ("2048", "t5"))
    pair = next(pair for pair in pairs if (pair.length, pair.a) == (2048, "t5"))
    assert (row["against"], row["seeds"], row["documents"]) == ("rope", "2", "32")
    assert float(row["difference"]) == pair.difference
    assert pair.over_documents is not None and pair.over_seeds is not None
    assert float(row["high_over_documents"]) == pair.over_documents.high
    assert float(row["low_over_seeds"]) == pair.over_seeds.low
    assert float(row["p_holm"]) == pair.p_holm


def test_an_interval_excludes_zero_or_not() -> None:
    assert Interval(0.1, 0.2).excludes_zero
    assert Interval(-0.2, -0.1).excludes_zero
    assert not Interval(-0.1, 0.1).excludes_zero
