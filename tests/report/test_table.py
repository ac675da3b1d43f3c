import csv
import io
from pathlib import Path

import pytest

from pipeline.report.collect import Cell, Study, collect
from pipeline.report.table import csv_table, shown, text_table
from tests.report.synthetic import LENGTHS, loss_at, write_extended, write_run


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return collect([write_run(tmp_path, name) for name in ("learned", "rope", "alibi")])


def test_every_encoding_has_loss_perplexity_and_window_control(study: Study) -> None:
    lines = text_table(study).splitlines()
    assert lines[0].split() == ["encoding", *map(str, LENGTHS)]
    block = lines[5:8]
    assert [line[:8].strip() for line in block] == ["rope", "", ""]
    assert "suffix loss" in block[0]
    assert f"{loss_at('rope', 1024, 0):.3f} ± 0.041" in block[0]
    assert "perplexity" in block[1]
    assert "76.13" in block[1]
    assert block[2].split()[:3] == ["window", "control", "-"]
    assert block[2].split()[3:] == [f"{loss_at('rope', 128, 0):.3f}"] * 5


def test_the_end_of_an_encoding_is_in_the_table_and_under_it(study: Study) -> None:
    text = text_table(study)
    assert text.splitlines()[2].count("not defined") == 4
    assert "learned: not defined beyond 128." in text
    assert text.count("not defined beyond") == 1


def test_what_the_interval_is_stands_under_the_table(study: Study, tmp_path: Path) -> None:
    assert "± 95 % interval over documents (t, one seed)" in text_table(study)
    seeds = [write_run(tmp_path / "seeds", "rope", seed) for seed in (0, 1)]
    assert "± 95 % interval over seeds (t)." in text_table(collect(seeds))
    mixed = collect([*seeds, write_run(tmp_path / "seeds", "alibi")])
    assert "interval (t) over seeds; of alibi, with one seed, over documents" in text_table(mixed)


def test_the_csv_has_every_cell_of_every_protocol(study: Study) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(study))))
    assert len(rows) == 3 * (6 + 1 + 6 + 6)
    found = {(row["encoding"], row["protocol"], row["length"]): row for row in rows}
    row = found["alibi", "suffix", "2048"]
    assert float(row["loss"]) == loss_at("alibi", 2048, 0)
    assert (row["defined"], row["spread_over"]) == ("true", "documents")
    assert float(row["spread"]) == pytest.approx(0.0408, abs=1e-4)
    assert (row["seeds"], row["documents"], row["scored_tokens"]) == ("1", "32", "2048")
    ended = found["learned", "suffix", "256"]
    assert (ended["defined"], ended["loss"]) == ("false", "")
    assert ended["reason"].startswith("not defined beyond 128: ")
    assert found["learned", "window control", "128"]["defined"] == "true"


def test_an_extension_stands_under_its_encoding_and_says_what_it_is(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name) for name in ("rope", "alibi")]
    before = text_table(collect(runs)).splitlines()
    assert "EXTENSION" not in "".join(before)
    write_extended(runs[0], "yarn", "scale=4", change=1.0)
    study = collect(runs)
    text = text_table(study)
    names = [line.split("  ")[0] for line in text.splitlines() if "suffix loss" in line]
    assert names == ["rope", "rope + yarn scale=4", "alibi"]
    assert "ENCODING + EXTENSION: the trained encoding, changed when it is tested" in text
    rows = list(csv.DictReader(io.StringIO(csv_table(study))))
    losses = {
        (row["encoding"], row["extension"]): float(row["loss"])
        for row in rows
        if (row["protocol"], row["length"]) == ("suffix", "512")
    }
    rope = loss_at("rope", 512, 0) or 0.0
    assert losses["rope", "none"] == rope
    assert losses["rope + yarn scale=4", "yarn scale=4"] == pytest.approx(rope + 1.0)
    assert len(losses) == 3


def test_several_seeds_say_so_in_the_csv(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope", seed) for seed in (0, 1)])
    row = next(csv.DictReader(io.StringIO(csv_table(study))))
    assert (row["seeds"], row["spread_over"]) == ("2", "seeds")


@pytest.mark.parametrize(
    ("perplexity", "text"),
    [(9.876, "9.88"), (999.994, "999.99"), (12345.6, "12,346"), (3.2e9, "3.20e+09")],
)
def test_perplexities_of_any_size_are_readable(perplexity: float, text: str) -> None:
    cell = Cell(1.0, None, perplexity, None, 1, 1, 1, None)
    assert shown(cell, "perplexity") == text


def test_a_loss_without_interval_or_perplexity_is_shown_without(tmp_path: Path) -> None:
    assert shown(Cell(800.0, None, None, None, 1, 1, 1, None), "loss") == "800.000"
    assert shown(Cell(800.0, None, None, None, 1, 1, 1, None), "perplexity") == "over 1e299"
    assert shown(None, "loss") == "-"


def test_a_loss_too_large_for_a_perplexity_has_none(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope", row={"loss": 800.0})])
    cell = study.cell("rope", "suffix", 256)
    assert cell
    assert cell.perplexity is None
