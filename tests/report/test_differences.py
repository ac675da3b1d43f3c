"""The section "Differences": tables for few encodings, matrices for many, and what is said."""

from pathlib import Path

from pipeline.record.folder import RunFolder
from pipeline.report.collect import collect
from pipeline.report.differences import differences_section
from pipeline.report.pairs import find_pairs
from pipeline.report.values import read_values
from tests.report.synthetic import LENGTHS, write_kept


def test_tables_by_length_say_what_few_seeds_allow(tmp_path: Path) -> None:
    study = collect(
        [write_kept(tmp_path, name, seed) for name in ("rope", "t5") for seed in (0, 1)]
    )
    section = differences_section(study, find_pairs(study, read_values(study)))
    assert section.count("<table ") == len(LENGTHS)
    assert section.count("<details open>") == 3
    assert "At 128 tokens, the train length" in section
    assert "2 seeds are few" in section
    pairs = find_pairs(study, read_values(study))
    sure = {pair.length: (pair.p_holm or 1.0) < 0.05 for pair in pairs}
    assert True in sure.values() and False in sure.values()
    told = ", ".join(f"{int(sure[n])} of 1 pair at {n}" for n in LENGTHS)
    assert f"differ over seeds with a corrected p below 0.05: {told}." in section
    assert "Each length is a family of its own" in section and "all 6 together" in section
    pair = pairs[-1]
    interval = pair.over_documents
    assert interval is not None
    assert f"<td>{pair.difference:.3f}</td><td>[{interval.low:.3f}, {interval.high:.3f}]" in section


def test_one_seed_is_said_to_be_no_ground_for_p(tmp_path: Path) -> None:
    study = collect([write_kept(tmp_path, name) for name in ("rope", "t5")])
    section = differences_section(study, find_pairs(study, read_values(study)))
    assert "One seed: no p." in section
    assert "differ over seeds with" not in section


def test_encodings_without_a_common_seed_are_not_said_to_have_one(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, "rope", seed) for seed in (0, 1, 2)]
    runs += [write_kept(tmp_path, "t5", seed) for seed in (1, 2)]
    study = collect([*runs, write_kept(tmp_path, "alibi", 7)])
    section = differences_section(study, find_pairs(study, read_values(study)))
    assert "One seed" not in section and "2 seeds are few" in section
    assert "Encodings without a seed in common are not compared" in section


def test_many_encodings_stand_in_a_matrix(tmp_path: Path) -> None:
    names = ("none", "sinusoidal", "rope", "alibi", "t5", "kerple", "fire")
    study = collect([write_kept(tmp_path, name, seed) for name in names for seed in range(3)])
    pairs = find_pairs(study, read_values(study))
    section = differences_section(study, pairs)
    assert section.count("<h3>") == section.count("<table>") == 3
    assert [f"At {n} tokens" in section for n in LENGTHS] == [False, True, True, False, False, True]
    longest = section.partition("At 2048 tokens")[2]
    sure = next(pair for pair in pairs if pair.length == 2048 and (pair.p_holm or 1.0) < 0.05)
    assert f"<b>{sure.difference:.3f}*</b>" in longest
    assert f"<b>{-(sure.difference or 0.0):.3f}*</b>" in longest
    assert "Every pair stands in pairs.csv" in section
    assert "Bold: the interval over documents excludes 0, as one pair in twenty does by" in section


def test_labels_are_escaped(tmp_path: Path) -> None:
    runs = [write_kept(tmp_path, name) for name in ("rope", "alibi")]
    for run, value in zip(runs, ("<b>", "<i>"), strict=True):
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text.replace("name: ", f"name: {value}"))
        RunFolder(run).mark_finished()
        rows = run / "evaluation" / "rows.jsonl"
        rows.write_text(rows.read_text().replace('"position": "', f'"position": "{value}'))
    study = collect(runs)
    section = differences_section(study, find_pairs(study, read_values(study)))
    assert "&lt;i&gt;alibi" in section
    assert "<i>" not in section
