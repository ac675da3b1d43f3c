"""Use of context from made-up runs: gains, usable lengths, RECL, the power law."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.evaluate.bootstrap import intervals
from pipeline.evaluate.power_law import PowerLaw
from pipeline.evaluate.recl import Nats, effective_lengths
from pipeline.record.metrics import read_rows
from pipeline.report.collect import Study, collect
from pipeline.report.context_use import context_section
from pipeline.report.gains import Gains, find_gains, gains_csv
from pipeline.report.page import build_report
from pipeline.report.pairs import Interval
from pipeline.report.values import read_values
from tests.report.synthetic import LENGTHS, loss_at, write_kept, write_rows, write_run, write_values

FATES = {"rope": LENGTHS, "alibi": LENGTHS, "learned": LENGTHS[:2]}


def nats_of(run: Path, length: int) -> Nats:
    """[documents * targets]."""
    with np.load(run / "evaluation" / "values" / f"suffix-{length}.npz") as file:
        return np.asarray(file["nats"], dtype=np.float64)


def trained_at(length: int) -> dict[str, Any]:
    """What makes a made-up run one of another train length."""
    return {"config": {"train_length": length}, "row": {"train_length": length}}


def gains_of(study: Study) -> dict[str, Gains]:
    return {own.label: own for own in find_gains(study, read_values(study))}


def test_a_gain_is_the_loss_at_the_train_length_minus_that_at_a_longer_one(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, "alibi", seed) for seed in (0, 1)]
    own = gains_of(collect(runs))["alibi"]
    assert [gain.length for gain in own.gains] == [256, 512, 1024, 2048]
    gain = own.gains[-1]
    by_seed = [
        (loss_at("alibi", 128, s) or 0.0) - (loss_at("alibi", 2048, s) or 0.0) for s in (0, 1)
    ]
    # alibi's made-up loss falls by 0.015 per doubling
    assert gain.value == pytest.approx(np.mean(by_seed))
    assert 0.02 < gain.value < 0.1
    changes = []
    for run in runs:
        change = nats_of(run, 128) - nats_of(run, 2048)
        changes.append(change.reshape(32, 64).sum(axis=1))
    low, high = intervals(np.mean(changes, axis=0)[:, None], np.full(32, 64.0))[:, 0]
    assert gain.over_documents is not None and gain.over_seeds is not None
    assert (gain.over_documents.low, gain.over_documents.high) == pytest.approx((low, high))
    assert gain.over_seeds.low < gain.value < gain.over_seeds.high


def test_an_encoding_that_fails_loses(tmp_path: Path) -> None:
    own = gains_of(collect([write_kept(tmp_path, "rope"), write_kept(tmp_path, "learned")]))
    gain = own["rope"].gains[-1]
    assert gain.value < -1.0
    assert gain.over_documents is not None and gain.over_documents.high < 0.0
    assert gain.over_seeds is None
    assert own["learned"].gains == []


# Where the loss at 512 is a hair within 2 %, or beyond, other documents would often have ended at
# the other length; where it is far beyond, none would.
@pytest.mark.parametrize(
    ("at_512", "usable", "ends"),
    [(2.0395, 512, (256, 512)), (2.0405, 256, (256, 512)), (2.2, 256, (256, 256))],
)
def test_usable_length_has_an_interval_over_documents(
    tmp_path: Path, at_512: float, usable: int, ends: tuple[int, int]
) -> None:
    run = write_run(tmp_path, "alibi")
    path = run / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    losses = dict(zip(LENGTHS, (2.2, 2.0, 1.98, at_512, 2.5, 2.0), strict=True))
    for row in rows:
        if row["protocol"] == "suffix":
            row["loss"] = losses[row["length"]]
    write_rows(path, rows)
    write_values(path)
    own = gains_of(collect([run]))["alibi"]
    assert own.usable == usable
    assert own.usable_over == Interval(*map(float, ends))


def test_recl_is_given_by_seed_for_the_group(tmp_path: Path) -> None:
    runs = {(name, seed): write_kept(tmp_path, name, seed) for name in FATES for seed in (0, 1)}
    own = gains_of(collect(list(runs.values())))
    for share in (0.1, 1.0):
        for seed in (0, 1):
            nats = {
                name: {n: nats_of(runs[name, seed], n) for n in defined}
                for name, defined in FATES.items()
            }
            expected = effective_lengths(nats, LENGTHS, share)
            found = {name: own[name].recl[share] for name in FATES}
            assert {name: found[name][seed] for name in FATES} == expected
    reaches = own["learned"].recl[0.1]
    assert isinstance(reaches, dict)
    assert list(reaches) == [0, 1]
    assert all(reach.length <= 128 for reach in reaches.values())


def test_without_nats_there_are_losses_and_reasons(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "alibi"), write_kept(tmp_path, "rope")])
    own = gains_of(study)["alibi"]
    why = "compare/alibi-L128-s0 keeps no nats of single targets"
    assert own.usable == study.usable_length("alibi") == 2048
    for reason in (own.gains[0].reason, own.usable_over, own.recl[0.1], own.recl[1.0]):
        assert isinstance(reason, str)
        assert why in reason
    assert own.gains[0].over_documents is None
    section = context_section(study, find_gains(study, read_values(study)))
    assert f"alibi: {why}" in section


def test_without_a_loss_at_the_train_length_there_is_no_gain(tmp_path: Path) -> None:
    study = collect([write_kept(tmp_path, "rope", **trained_at(100))])
    found = find_gains(study, read_values(study))
    assert found[0].gains == []
    section = context_section(study, found)
    assert "there is no suffix loss at the train length of 100; add it to eval_lengths" in section
    assert "<th>context gain</th>" not in section


def test_seeds_that_not_all_have_make_no_group(tmp_path: Path) -> None:
    own = gains_of(collect([write_kept(tmp_path, "rope", 0), write_kept(tmp_path, "alibi", 1)]))
    assert own["rope"].recl[1.0] == "no seed that all encodings have"


def test_the_power_law_is_fitted_within_the_train_length(tmp_path: Path) -> None:
    short = gains_of(collect([write_kept(tmp_path / "a", "rope")]))["rope"].power_law
    assert isinstance(short, str)
    assert "2 of the lengths tested lie within the train length of 128" in short
    run = write_run(tmp_path / "b", "alibi", **trained_at(1024))
    path = run / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    for row in rows:
        if row["protocol"] == "suffix":
            row["loss"] = (20.0 / row["length"]) ** 0.5 + 2.0 if row["length"] < 2000 else 7.0
    write_rows(path, rows)
    study = collect([run])
    law = gains_of(study)["alibi"].power_law
    assert isinstance(law, PowerLaw)
    assert (law.alpha, law.beta, law.gamma) == pytest.approx((20.0, 0.5, 2.0), rel=1e-4)
    section = context_section(study, find_gains(study, read_values(study)))
    assert "<td>20</td><td>0.5</td><td>2.00</td>" in section
    assert "fitted to the mean loss over seeds" in section


def test_gains_and_pairs_lie_beside_the_page_and_stand_on_it(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, name) for name in ("rope", "alibi")]
    html = build_report(runs, tmp_path / "out").read_text()
    assert html.index("<h2>Differences</h2>") < html.index("<h2>Use of context</h2>")
    study = collect(runs)
    found = find_gains(study, read_values(study))
    assert (tmp_path / "out" / "gains.csv").read_text() == gains_csv(study, found)
    assert len((tmp_path / "out" / "pairs.csv").read_text().splitlines()) == 1 + len(LENGTHS)
    rows = list(csv.DictReader(io.StringIO(gains_csv(study, found))))
    row = next(row for row in rows if (row["encoding"], row["length"]) == ("alibi", "1024"))
    gain = found[1].gains[2]
    assert (row["quantity"], float(row["value"])) == ("context gain", gain.value)
    assert gain.over_documents is not None
    assert float(row["low_over_documents"]) == gain.over_documents.low
    assert f"<td>{gain.value:.3f} <small>[{gain.over_documents.low:.3f}, " in html
    names = {row["quantity"] for row in rows}
    assert names == {"context gain", "usable length", "RECL r=0.1", "RECL r=1", "power law"}
