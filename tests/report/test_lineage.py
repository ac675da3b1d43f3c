"""Continued runs in a report: told from others, seeds of one treatment together, with lineage."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from pipeline.report.appendix import provenance
from pipeline.report.collect import collect
from pipeline.report.differences import differences_section
from pipeline.report.fragments import tokens_of
from pipeline.report.lineage import origin_of_treatment
from pipeline.report.pairs import find_pairs
from pipeline.report.table import text_table
from pipeline.report.values import read_values
from tests.report.synthetic import write_run

NONE = {"name": "none"}
YARN = {"name": "yarn", "scale": 4.0}


def ancestor(run: str, length: int, extension: str = "none", weights: str = "d") -> dict[str, Any]:
    return {
        "run": run, "config_hash": "c" * 64, "step": 450, "tokens": 1000, "train_length": length,
        "extension": extension, "weights_sha256": weights * 64,
    }  # fmt: skip


def write_continued(
    root: Path,
    init_from: str,
    extension: dict[str, Any] = YARN,
    *,
    seed: int = 0,
    position: str = "rope",
    experiment: str = "longer",
    lineage: Sequence[dict[str, Any]] = (ancestor("demo/rope-L128-s0", 128),),
) -> Path:
    """A run folder that says that it continues another, and has rows of its own extension."""
    named = {"extension": extension["name"], "extension_settings": ""}
    if extension != NONE:
        named["extension_settings"] = f"scale={extension['scale']:g}"
    config = {
        "init_from": init_from, "extension": extension, "experiment": experiment,
        "encoding_length": 128, "position_ids": {"name": "consecutive"},
    }  # fmt: skip
    folder = write_run(root, position, seed, config=config, row=named)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "lineage": list(lineage)}))
    return folder


def write_plain(root: Path, **more: Any) -> Path:
    own = {"init_from": None, "encoding_length": None, "extension": NONE}
    return write_run(root, "rope", config={**own, **more})


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("runs/demo/rope-L128-s0", True),
        ("runs/demo/rope-L128-s12/", True),
        ("runs/demo/{position}-L128-s{seed}", True),
        ("runs/demo/rope-L128-s{seed}", True),
        ("runs/demo/rope-L128-s0-yarn", False),
        ("runs/demo/rope-L256-s0", False),
        ("runs/other/rope-L128-s0", False),
    ],
)
def test_origins_that_differ_by_seed_alone_are_one_treatment(path: str, same: bool) -> None:
    own = origin_of_treatment({"init_from": path, "position": {"name": "rope"}})
    assert (own == "runs/demo/{position}-L128-s{seed}") == same
    other = origin_of_treatment({"init_from": "runs/demo/t5-L128-s0", "position": {"name": "t5"}})
    assert other == "runs/demo/{position}-L128-s{seed}"
    assert origin_of_treatment({"init_from": None}) is None


def test_a_continued_run_has_its_extension_and_origin_in_its_label(tmp_path: Path) -> None:
    """Also alone, and in place of the settings that these words stand for."""
    plain = write_plain(tmp_path)
    alone = write_continued(tmp_path, "runs/demo/rope-L128-s0")
    assert list(collect([alone]).encodings) == ["rope (yarn scale=4, from L128)"]
    bare = write_continued(tmp_path, "runs/demo/rope-L128-s0", NONE, experiment="bare")
    labels = list(collect([plain, alone, bare]).encodings)
    assert labels == ["rope", "rope (yarn scale=4, from L128)", "rope (from L128)"]


def continued_seeds(root: Path, weights: str) -> list[Path]:
    """One run for each letter, from weights of this name."""
    return [
        write_continued(
            root, f"a/rope-L128-s{n}", seed=n,
            lineage=[ancestor("a/rope-L128-s0", 128, weights=name), ancestor("b", 256)],
        )
        for n, name in enumerate(weights)
    ]  # fmt: skip


def test_seeds_with_origins_of_their_own_are_seeds_of_one_encoding(tmp_path: Path) -> None:
    study = collect(continued_seeds(tmp_path, "12"))
    assert {label: len(found) for label, found in study.encodings.items()} == {
        "rope (yarn scale=4, from L128 and L256)": 2
    }
    assert not study.varied
    assert "continue the same weights" not in text_table(study)


def test_seeds_that_continue_one_run_have_no_p(tmp_path: Path) -> None:
    """They are no sample of origins: another might have made it come out the other way."""
    runs = [*continued_seeds(tmp_path, "111")]
    runs += [write_run(tmp_path, "t5", seed) for seed in range(3)]
    study = collect(runs)
    own = "rope (yarn scale=4, from L128 and L256)"
    assert (
        f"{own}: all 3 seeds continue the same weights, those of a/rope-L128-s0, so intervals over "
        "seeds cover the training since then only, and there is no p."
    ) in text_table(study)
    pairs = find_pairs(study, read_values(study))
    for pair in pairs:
        assert pair.over_seeds is not None and (pair.p, pair.p_holm) == (None, None)
        assert f"no p: the seeds of {own} have one origin; no interval over doc" in pair.reason
    section = differences_section(study, pairs)
    assert f"no p: the seeds of {own} have one origin" in section
    assert "differ over seeds with a corrected p" not in section


def test_seeds_of_which_some_have_one_origin_are_refused(tmp_path: Path) -> None:
    runs = continued_seeds(tmp_path, "112")
    with pytest.raises(DataError, match="some of these runs continue the same weights and others"):
        collect(runs)
    assert len(collect(runs[1:]).runs) == 2


def test_runs_of_different_origins_are_different_treatments(tmp_path: Path) -> None:
    first = write_continued(tmp_path, "runs/demo/rope-L128-s0")
    other = write_continued(tmp_path, "runs/long/rope-L128-s0", experiment="other")
    labels = list(collect([first, other]).encodings)
    assert labels == [
        "rope (yarn scale=4, from demo/rope-L128-s{seed})",
        "rope (yarn scale=4, from long/rope-L128-s{seed})",
    ]


def test_provenance_and_tokens_tell_the_whole_lineage(tmp_path: Path) -> None:
    yarn = ancestor("mid/rope-L256-s0", 256, "yarn scale=2")
    lineage = [ancestor("demo/rope-L128-s0", 128), yarn]
    run = write_continued(tmp_path, "runs/mid/rope-L256-s0", lineage=lineage)
    study = collect([run])
    assert list(study.encodings) == ["rope (yarn scale=4, from L128 and L256)"]
    assert (
        "longer/rope-L128-s0 continues mid/rope-L256-s0 (450 steps of 256 tokens a sequence under "
        "yarn scale=2, 1,000 tokens in all; configuration cccccccccccc, weights dddddddddddd), "
        "which continued demo/rope-L128-s0 (450 steps of 128 tokens a sequence, 1,000 tokens"
    ) in provenance(study)
    assert tokens_of(study.runs[0]) == 1_228_800 + 2 * 1000
    assert "continues" not in provenance(collect([write_plain(tmp_path)]))


def test_rows_of_another_extension_are_not_a_continued_runs_own(tmp_path: Path) -> None:
    run = write_continued(tmp_path, "runs/demo/rope-L128-s0")
    path = run / "evaluation" / "rows.jsonl"
    path.write_text(path.read_text().replace("scale=4", "scale=8"))
    with pytest.raises(DataError, match="'yarn scale=8' among those of the trained encoding"):
        collect([run])
    path.write_text(path.read_text().replace('"yarn"', '"none"').replace("scale=8", ""))
    with pytest.raises(DataError, match="'none' among those of the trained encoding"):
        collect([run])


def test_a_damaged_lineage_is_named(tmp_path: Path) -> None:
    broken = {**ancestor("a", 128), "step": "450"}
    run = write_continued(tmp_path, "runs/demo/rope-L128-s0", lineage=[broken])
    with pytest.raises(DataError, match=r"summary\.json: lineage: `step` = .* must be int"):
        collect([run])
