"""What the page needs for its script: policy, parts of pictures, families, facts and warnings."""

import base64
import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.positions.declared import declared
from pipeline.record.metrics import read_rows
from pipeline.report.capability import capability_section
from pipeline.report.collect import Study, collect
from pipeline.report.curves import suffix_figure
from pipeline.report.filters import filter_panel
from pipeline.report.output import draw_svg, file_svg, page_svg
from pipeline.report.runs import runs_section
from pipeline.report.sections import conclusions
from pipeline.report.shell import whole_page
from pipeline.report.task_shares import at_chance
from tests.report.synthetic import loss_at, write_rows, write_run
from tests.report.test_tasks import edit, made

NAMES = ("learned", "rope", "alibi")
G = "{http://www.w3.org/2000/svg}g"


def sha(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def numbers(study: Study) -> dict[str, int]:
    return {label: number for number, label in enumerate(study.encodings)}


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    html = whole_page("title", '<p style="fill: red">a</p>')
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert policy.split("; ") == [
        "default-src 'none'", f"script-src 'sha256-{sha(script)}'",
        f"style-src 'sha256-{sha(style)}'", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert "eval" not in script and "innerHTML" not in script and "://" not in script


def test_styles_of_elements_become_rules_and_text_never_does() -> None:
    html = whole_page(
        "t", '<b style="fill: red">a style="color: blue"</b><i style="fill: red">x</i>'
    )
    assert '<b class="k0">a style="color: blue"</b><i class="k0">x</i>' in html
    assert ".k0 { fill: red }" in html and "color: blue }" not in html


def test_a_picture_says_what_its_parts_are_of(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope", seed) for seed in (0, 7)])
    figure = suffix_figure(study)
    drawn = draw_svg(figure, "suffix")
    svg = page_svg(figure, drawn)
    # band, line and window control of the mean, line and window control of each seed, two panels
    assert svg.count('<g data-encoding="0" data-kind="mean">') == 2 * 3
    assert svg.count('<g data-encoding="0" data-kind="seed" data-seed="7">') == 2 * 2
    points = re.findall(r'<circle [^>]*data-seed="7"><title>(.*?)</title>', svg)
    loss = loss_at("rope", 64, 7)
    assert points[0].startswith(f"rope, seed 7, 64 tokens: {loss:.3f} ± 0.041 nats, perplexity")
    alone = file_svg(drawn)
    assert alone.startswith("<?xml") and alone.rstrip().endswith("</svg>")
    # seeds are hidden in the page at first; a paper has no way to hide them
    lost = drawn.count("<path") - alone.count("<path")
    assert lost > 0 and "-seed" not in alone and 'id="e0' not in alone
    groups = [len(list(ElementTree.fromstring(svg).iter(G))) for svg in (alone, drawn)]
    assert groups[0] == groups[1] - drawn.count("-seed-s") - drawn.count("-seed-s") // 2


def test_a_seed_without_a_point_takes_nothing_else_out_of_the_picture(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "learned", seed) for seed in (0, 1)]
    for path in (run / "evaluation" / "rows.jsonl" for run in runs):
        write_rows(path, [row for row in read_rows(path) if row["length"] > 128])
    drawn = draw_svg(suffix_figure(collect([*runs, write_run(tmp_path, "rope")])), "suffix")
    assert re.search(r'<g id="e0-seed-s1"\s*/>', drawn)
    assert ElementTree.fromstring(file_svg(drawn)).tag == G[:-1] + "svg"
    assert file_svg(drawn).count("<path") == drawn.count("<path")


def test_the_points_of_a_picture_lie_on_its_lines(tmp_path: Path) -> None:
    figure = suffix_figure(collect([write_run(tmp_path, "alibi")]))
    svg = page_svg(figure, draw_svg(figure, "suffix"))
    part = '<g data-encoding="0" data-kind="run" data-seed="0">'
    line, _ = re.findall(rf'{part}<path d="(M[^"]*)"', svg)  # and its window control
    ends = [tuple(map(float, pair.split())) for pair in re.split(r"[ML]", line)[1:]]
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert len(circles) == len(ends) == 6
    for (x, y), circle in zip(ends, circles, strict=True):
        assert (float(circle[0]), float(circle[1])) == pytest.approx((x, y), abs=0.06)


def test_an_encoding_that_this_version_lacks_is_of_another_family(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, name) for name in ("rope", "bygone")])
    panel = filter_panel(study, numbers(study))
    assert 'value="0" data-family="rotation"' in panel
    assert 'value="1" data-family="other"' in panel
    section = capability_section(study)
    assert "Not an encoding of this version, so nothing is declared: bygone." in section
    assert f"<td>other</td>{'<td>–</td>' * 6}<td>sdpa</td><td>–</td><td>0</td>" in section


def test_facts_stand_beside_what_the_runs_had(tmp_path: Path) -> None:
    section = capability_section(collect([write_run(tmp_path, name) for name in NAMES]))
    rows = dict(re.findall(r"</span>(\w+)</th>(.*?)</tr>", section))
    assert rows["learned"] == "".join(f"<td>{text}</td>" for text in (
        "input embedding", "no", "train length", "no", "yes", "yes", "sdpa, tile, flex", "sdpa",
        "train_length * width", "16,384",
    ))  # fmt: skip
    facts = declared("alibi")
    assert facts is not None
    assert rows["alibi"].startswith("<td>bias</td><td>yes</td><td>unbounded</td><td>yes</td>")
    assert f"<td>{', '.join(facts.attention_paths)}</td><td>tile</td>" in rows["alibi"]


def test_every_run_has_a_row_of_its_own(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, seed) for name in NAMES for seed in (0, 1)]
    section = runs_section(collect(runs))
    assert section.count("<tr><th ") == 6
    for seed in (0, 1):
        row = section.partition(f'data-encoding="1" data-seed="{seed}"')[2].partition("</tr>")[0]
        assert f"<td>{loss_at('rope', 256, seed):.3f}<small> ± 0.041</small></td>" in row
        assert f"<td>{2.9 + seed * 0.01:.3f}</td>" in row


def test_nothing_to_choose_is_not_offered(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, name) for name in ("rope", "xpos")])
    panel = filter_panel(study, numbers(study))
    sets = re.findall(r"<fieldset( hidden)?><legend>(\w+)", panel)
    assert sets == [("", "Encodings"), (" hidden", "Families"), (" hidden", "Seeds")]


def test_conclusions_name_few_seeds_little_training_protocol_and_idle_tasks(tmp_path: Path) -> None:
    runs = made(tmp_path, "rope", "alibi", seeds=3)
    for run in runs:
        edit(run, "copy", exact_match=0.0)
        edit(run, "parity", exact_match=0.75)
    study = collect(runs)
    # 15 of 20 at 0.5 would be rare once (p = 0.02), and is no wonder among 24; needles are found
    assert at_chance(study) == ["copy", "parity"]
    said = conclusions(study)
    for words in (
        "3 seeds are few", "1.2 training tokens per parameter", "last 64 tokens of each document",
        "Anything about encodings from copy, parity: there no run is above guessing",
    ):  # fmt: skip
        assert words in said, words
    edit(runs[0], "copy", exact_match=0.05)
    assert at_chance(collect(runs)) == ["parity"]
