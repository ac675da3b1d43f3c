"""The section about probes: optional, means over seeds, and never of rows measured apart."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from pipeline.config.label import file_name
from pipeline.errors import DataError
from pipeline.record.metrics import read_rows
from pipeline.report.collect import collect
from pipeline.report.drawing import COLOURS
from pipeline.report.page import build_report
from pipeline.report.probe_pictures import attention_figure, decodability_figure, draw_probes
from pipeline.report.probes import find_probes, layers_of, probes_text
from tests.report.synthetic import write_extended, write_rows, write_run
from tests.report.test_page import Page

LAYERS, HEADS = 2, 3
EDGES = {128: [0, 1, 2, 4, 8, 16, 32, 64, 128], 512: [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]}


def distance(length: int, layer: int, head: int, seed: int) -> float:
    return length / 8 + 10 * layer + head + 100 * seed


def probe_rows(seed: int, lengths: tuple[int, ...], **common: Any) -> list[dict[str, Any]]:
    """Rows of every probe, of known numbers."""
    rows: list[dict[str, Any]] = []
    for length in lengths:
        bins = len(EDGES[length]) - 1
        for layer in range(LAYERS):
            for head in range(HEADS):
                place = {"length": length, "layer": layer, "head": head}
                mass = np.full(bins, 0.5 / (bins - 1))
                mass[head] = 0.5
                rows.append({
                    **place, "probe": "attention", "edges": EDGES[length], "mass": mass.tolist(),
                    "distance": distance(length, layer, head, seed), "beyond": 0.1 * head,
                })  # fmt: skip
                rows.append({**place, "probe": "resolution", "resolution": 0.01 * (head + 1)})
        for layer in range(LAYERS + 1):
            for number, target in enumerate(("position", "log position")):
                rows.append({
                    "length": length, "layer": layer, "head": None, "probe": "decodability",
                    "target": target, "r2": 0.2 * layer + 0.1 * number + 0.02 * seed,
                    "control_r2": 0.01 * number - 0.005,
                })  # fmt: skip
    facts = {
        "run": "compare/one", "seed": seed, "defined": True, "reason": None, "documents": 4,
        "queries": 16, "split": "test", "text_sha256": "ab" * 32, "precision": "fp32",
        "corpus_sha256": "c0" * 32, "tokenizer_sha256": "70" * 32, "suffix_tokens": 64,
        "code_sha256": "cd" * 32, "extension": "none", "extension_settings": "", **common,
    }  # fmt: skip
    return [{**facts, **row} for row in rows]


def write_probes(
    place: Path, seed: int = 0, lengths: tuple[int, ...] = (128, 512), **common: Any
) -> Path:
    """Probes of a run, under an extension if `common` names one; returns their file."""
    folder = place / "probes"
    if "extension" in common:
        named = f"{common['extension']} {common['extension_settings']}".rstrip()
        folder = folder / file_name(named)
    folder.mkdir(parents=True)
    write_rows(folder / "rows.jsonl", probe_rows(seed, lengths, **common))
    return folder / "rows.jsonl"


def probed(tmp_path: Path, *names: str, seeds: int = 1) -> list[Path]:
    runs = []
    for name in names:
        for seed in range(seeds):
            runs.append(write_run(tmp_path, name, seed))
            write_probes(runs[-1], seed)
    return runs


def test_a_report_without_probes_has_no_word_of_them(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    page = build_report([run], tmp_path / "out")
    assert "Probes" not in page.read_text()
    assert not list((tmp_path / "out").glob("probe*"))


def test_numbers_are_means_over_heads_and_seeds(tmp_path: Path) -> None:
    study = collect(probed(tmp_path, "rope", seeds=2))
    lines = layers_of(find_probes(study))
    assert [(line.length, line.layer) for line in lines] == [
        (n, layer) for n in (128, 512) for layer in range(3)
    ]
    line = lines[4]
    assert line.distance == pytest.approx(64 + 10 + 1 + 50)
    assert (line.nearest, line.farthest) == pytest.approx((64 + 10 + 50, 64 + 10 + 2 + 50))
    assert line.beyond == pytest.approx(0.1) and line.resolution == pytest.approx(0.02)
    assert line.position == pytest.approx(0.21) and line.log_position == pytest.approx(0.31)
    # the larger of the two
    assert line.control == pytest.approx(0.005)
    assert lines[5].distance is None and lines[5].position == pytest.approx(0.41)


def test_the_page_has_a_section_with_two_pictures(tmp_path: Path) -> None:
    html = build_report(probed(tmp_path, "rope", "alibi"), tmp_path / "out").read_text()
    page = Page(html)
    assert page.open == [] and page.asks == [] and len(page.ids) == len(set(page.ids))
    assert {"probe-attention.png", "probe-decodability.png"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    section = html.partition("<h2>Probes</h2>")[2]
    assert "<td>75.0</td><td>74.0 to 76.0</td><td>10.0%</td><td>2.00e-02</td>" in section
    for words in ("Attention by distance", "Position in the states", "4 documents of the test"):
        assert words in page.words


def test_the_text_table_says_on_what_it_rests_and_what_is_missing(tmp_path: Path) -> None:
    runs = [*probed(tmp_path, "rope"), write_run(tmp_path, "alibi")]
    study = collect(runs)
    text = probes_text(study, find_probes(study))
    assert "16 queries of each, 1 seed. Not probed: alibi." in text
    line = next(x for x in text.splitlines() if x.split()[1:3] == ["512", "1"])
    assert line.split()[3:] == [
        "75.0", "74.0", "to", "76.0", "10.0%", "2.00e-02", "0.200", "0.300", "0.005",
    ]  # fmt: skip


def test_an_extension_stands_beside_its_encoding_tested_or_not(tmp_path: Path) -> None:
    (run,) = probed(tmp_path, "rope")
    write_extended(run, "yarn", "scale=4")
    for scale in (4, 8):
        write_probes(run, extension="yarn", extension_settings=f"scale={scale}")
    study = collect([run])
    probes = find_probes(study)
    assert list(probes) == ["rope", "rope + yarn scale=4", "rope + yarn scale=8"]
    html = build_report([run], tmp_path / "out").read_text().partition("<h2>Probes</h2>")[2]
    # an encoding has one colour on the whole page
    assert 'class="dot c1"></span>rope + yarn scale=4' in html
    assert 'class="dot c2"></span>rope + yarn scale=8' in html


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text_sha256", "ef" * 32),
        ("queries", 8),
        ("documents", 3),
        ("code_sha256", "99" * 32),
        ("suffix_tokens", 32),
        ("corpus_sha256", "99" * 32),
        ("tokenizer_sha256", "99" * 32),
    ],
)
def test_rows_measured_otherwise_are_refused(field: str, value: Any, tmp_path: Path) -> None:
    runs = [*probed(tmp_path, "rope"), write_run(tmp_path, "alibi")]
    other: dict[str, Any] = {"run": "compare/other", field: value}
    write_probes(runs[1], **other)
    with pytest.raises(DataError, match=f"{field} differs .* in compare/other"):
        build_report(runs, tmp_path / "out")


def test_damaged_rows_are_named(tmp_path: Path) -> None:
    (run,) = probed(tmp_path, "rope")
    path = run / "probes" / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    del rows[3]["resolution"]
    write_rows(path, rows)
    with pytest.raises(DataError, match=r"probes.rows.jsonl:4: has no `resolution`"):
        collect_probes(run)
    path.write_text("")
    with pytest.raises(DataError, match="rows.jsonl: no row; probe the run again"):
        collect_probes(run)
    write_rows(path, [{**row, "extension": "yarn"} for row in probe_rows(0, (128,))])
    with pytest.raises(DataError, match=r"rows.jsonl:1: a row of extension 'yarn' among"):
        collect_probes(run)


def collect_probes(run: Path) -> object:
    return find_probes(collect([run]))


def test_what_has_no_number_is_said_and_not_averaged_away(tmp_path: Path) -> None:
    (run,) = probed(tmp_path, "rope")
    nothing = {"defined": False, "reason": "no finite numbers", "mass": None, "distance": None}
    rows = probe_rows(0, (128, 512))
    for row in rows:
        if row["probe"] == "attention" and (row["layer"], row["head"]) == (1, 2):
            row |= {**nothing, "beyond": None}
    write_rows(run / "probes" / "rows.jsonl", rows)
    study = collect([run])
    probes = find_probes(study)
    whole, broken, *_ = layers_of(probes)
    assert whole.distance is not None and whole.nearest is not None
    assert (broken.distance, broken.nearest, broken.beyond) == (None, None, None)
    assert broken.resolution is not None
    assert "rope at 128, layer 1: no finite numbers." in probes_text(study, probes)
    draw_probes(study, probes)


def lines_of(axes: Axes, colour: str) -> list[tuple[float, object, list[float]]]:
    """Width, style and values of the lines of one colour."""
    return [
        (line.get_linewidth(), line.get_linestyle(), np.asarray(line.get_ydata()).tolist())
        for line in axes.lines
        if to_hex(line.get_color()) == colour and len(np.asarray(line.get_ydata())) > 2
    ]


def test_a_panel_shows_every_head_thin_and_their_mean(tmp_path: Path) -> None:
    study = collect(probed(tmp_path, "rope", "alibi", seeds=2))
    figure = attention_figure(study, find_probes(study))
    assert [axes.get_title() for axes in figure.axes] == ["layer 0", "layer 1"]
    for axes in figure.axes:
        for colour in COLOURS[:2]:
            found = lines_of(axes, colour)
            thin = [y for width, _, y in found if width < 1]
            assert len(thin) == HEADS * 2 and all(len(y) == 10 for y in thin)
            (mean,) = [y for width, _, y in found if width > 1.5]
            assert mean == pytest.approx(np.mean(thin, axis=0))
            (trained,) = [y for width, _, y in found if width == 1.2]
            assert len(trained) == 8 and sum(trained) == pytest.approx(1.0)
        # train length 128 begins the bin after seven others and that of distance 0
        assert any(np.array_equal(line.get_xdata(), [7.5, 7.5]) for line in axes.lines)


def test_decodability_has_its_control_in_every_panel(tmp_path: Path) -> None:
    runs = [*probed(tmp_path, "rope"), write_run(tmp_path, "learned")]
    write_probes(runs[1], lengths=(128,))
    study = collect(runs)
    figure = decodability_figure(study, find_probes(study))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "position, 128 tokens", "log position, 128 tokens", "position, longest length",
        "log position, longest length",
    ]  # fmt: skip
    for number, axes in enumerate(figure.axes):
        own, control = lines_of(axes, COLOURS[0])
        log = 0.1 * (number % 2)
        assert own[2] == pytest.approx([log, 0.2 + log, 0.4 + log])
        assert control[1] == "--" and control[2] == pytest.approx([0.1 * log - 0.005] * 3)
        # the learned encoding ends at the train length
        assert len(lines_of(axes, COLOURS[1])) == (2 if number < 2 else 0)


def test_encodings_that_end_at_different_lengths_are_named_with_them(tmp_path: Path) -> None:
    runs = [*probed(tmp_path, "rope"), write_run(tmp_path, "learned")]
    write_probes(runs[1], lengths=(128,))
    study = collect(runs)
    for draw in (attention_figure, decodability_figure):
        names = draw(study, find_probes(study)).axes[0].get_legend_handles_labels()[1]
        assert names[:2] == ["rope, longest 512", "learned, longest 128"]
    (run,) = probed(tmp_path / "alone", "rope")
    study = collect([run])
    names = attention_figure(study, find_probes(study)).axes[0].get_legend_handles_labels()[1]
    assert names[0] == "rope"


def test_rows_from_before_suffix_tokens_was_a_fact_are_read(tmp_path: Path) -> None:
    runs = probed(tmp_path, "rope", "alibi")
    for run in runs:
        path = run / "probes" / "rows.jsonl"
        old = [{k: v for k, v in r.items() if k != "suffix_tokens"} for r in read_rows(path)]
        write_rows(path, old)
    assert list(find_probes(collect(runs))) == ["rope", "alibi"]


def test_notes_do_not_say_that_training_never_had_a_position(tmp_path: Path) -> None:
    study = collect(probed(tmp_path, "rope"))
    text = probes_text(study, find_probes(study))
    assert "may have had positions so far apart" in text
    assert "on a quarter of the documents" in text and "fitted anew at each length" in text
