import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.errors import DataError, StorageError
from pipeline.report.page import build_report
from tests.report.synthetic import loss_at, write_extended, write_run

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "input"}
# Elements and attributes with which a page can ask for something.
ASKING = {"link", "img", "iframe", "object", "embed", "form", "base", "image", "audio"}
ADDRESSES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster"}


class Page(HTMLParser):
    """Checks nesting and notes headings, text and whatever the page would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asks: list[str] = []
        self.order: list[str] = []
        self.words = ""
        self.ids: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"h1", "table", "figure", "h2"}:
            self.order.append(tag)
        if tag in ASKING:
            self.asks.append(tag)
        for name, value in attrs:
            if name in ADDRESSES and not (value or "").startswith("#"):
                self.asks.append(f"{name}={value}")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words += f"{data} "


def build(tmp_path: Path, *names: str, seeds: int = 1) -> tuple[str, Page]:
    """The page about made-up runs, as text and parsed."""
    runs = [write_run(tmp_path / "runs", name, seed) for name in names for seed in range(seeds)]
    html = build_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    return html, Page(html)


def test_the_page_is_whole_and_asks_nothing_of_a_network(tmp_path: Path) -> None:
    html, page = build(tmp_path, "learned", "rope", "alibi")
    assert page.open == []
    assert page.asks == []
    assert "@import" not in html
    assert all(part.startswith(("#", "url(#")) for part in _addresses(html))
    # The only addresses are the names of XML vocabularies, which nobody fetches.
    assert "://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", html)
    assert len(page.ids) == len(set(page.ids))


def test_the_heading_says_what_was_compared_and_the_table_comes_first(tmp_path: Path) -> None:
    html, page = build(tmp_path, "learned", "rope", "alibi")
    heading = "learned, rope and alibi: trained at 128 tokens, tested to 2048"
    assert f"<h1>{heading}</h1>" in html
    assert f"<title>{heading}</title>" in html
    assert page.order[:4] == ["h1", "table", "h2", "figure"]
    assert page.order.count("figure") == 3


def test_the_table_shows_every_number(tmp_path: Path) -> None:
    html, page = build(tmp_path, "learned", "rope")
    assert f"<td>{loss_at('rope', 512, 0):.3f}<small> ± 0.041</small></td>" in html
    assert f'<td class="trained">{loss_at("rope", 128, 0):.3f}<small>' in html
    assert page.words.count("window control") >= 2


def test_the_end_of_an_encoding_is_one_cell_over_the_lengths_it_lacks(tmp_path: Path) -> None:
    html, page = build(tmp_path, "learned", "rope")
    cell = '<td class="undefined" colspan="4">not defined beyond 128</td>'
    # Loss and perplexity in the main table, three losses in the other, one of the run; no window
    # control.
    assert html.count(cell) == 6
    assert "learned: not defined beyond 128." in page.words


def test_sections_for_cost_protocol_and_provenance(tmp_path: Path) -> None:
    _, page = build(tmp_path, "learned", "rope")
    marker = tmp_path / "runs" / "compare" / "rope-L128-s0" / "finished"
    for words in (
        "16,384", "700 MiB", "61.0 s", "of each of 32 documents of the test split",
        "the last 64 target tokens", "stride 16 at 64, 32 at 128", "ab" * 32,
        "compare/rope-L128-s0", "a" * 12, marker.read_text()[:12],
        "Python 3.11.9, torch 2.13.0; Linux",
        "text scored by suffix, window control, sliding, non-overlapping, per-position:",
        "windows of the stated length over 32 documents",
        "Configuration of compare/learned-L128-s0", "Other protocols", "non-overlapping",
    ):  # fmt: skip
        assert words in page.words, words


def test_it_says_what_one_seed_and_little_training_cannot_show(tmp_path: Path) -> None:
    _, page = build(tmp_path, "rope", "alibi")
    assert "with 1 seed each" in page.words
    assert "1.2 training tokens per parameter" in page.words
    assert "differences on them are surer" in page.words
    assert "Nothing but the position encoding differs between the runs." in page.words


def test_three_seeds_take_the_warning_about_seeds_away(tmp_path: Path) -> None:
    _, page = build(tmp_path, "rope", "alibi", seeds=3)
    assert "How close encodings rank" not in page.words
    assert "differences on them are surer" not in page.words
    assert "3 seeds each" in page.words
    assert "± 95 % interval over seeds (t)" in page.words
    assert "Nothing but the position encoding and the seed differs" in page.words


def test_an_extension_is_counted_as_a_test_and_repeats_no_training(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name) for name in ("rope", "alibi")]
    write_extended(runs[0], "yarn", "scale=4", change=1.0)
    html = build_report(runs, tmp_path / "out").read_text()
    words = Page(html).words
    assert "2 position encodings, 1 seed each and 1 test of them under an extension," in words
    assert "Nothing but the position encoding differs between the runs." in words
    assert words.count("Configuration of compare/rope-L128-s0") == 1
    cost = html.partition("<h2>Cost</h2>")[2].partition("</section>")[0]
    rows = re.findall(r"rope(?: [+] yarn scale=4)?</th>(.*?)</tr>", cost)
    (losses, own), (changed, extended) = (re.split(r"(?=<td>1,050,000)", row) for row in rows)
    # the losses that this bought are its own
    kept = [loss_at("rope", length, 0) or 0.0 for length in (128, 2048)]
    assert losses == "".join(f"<td>{loss:.3f}</td>" for loss in kept)
    assert changed == "".join(f"<td>{loss + 1.0:.3f}</td>" for loss in kept)
    # neither the time of its evaluation nor spikes are its own
    assert own.endswith("<td>0</td>")
    assert extended == own.replace("14.0 s", "–").removesuffix("<td>0</td>") + "<td>–</td>"
    assert "under an extension has the parameters and the training of the encoding" in cost


def test_a_title_of_many_names_counts_them(tmp_path: Path) -> None:
    names = [f"encoding_with_a_name_{n}" for n in range(8)]
    runs = [write_run(tmp_path, name) for name in names]
    page = build_report(runs, tmp_path / "out").read_text()
    assert "<h1>8 encodings: trained at 128 tokens" in page
    few = build_report(runs[:2], tmp_path / "few").read_text()
    assert f"<h1>{names[0]} and {names[1]}: trained at" in few


def test_what_is_said_of_seeds_is_said_of_those_that_have_so_many(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, seed) for name in ("alibi", "t5") for seed in range(3)]
    words = Page(build_report(runs, tmp_path / "even").read_text()).words
    assert "seed in common" not in words and "of some" not in words
    runs.append(write_run(tmp_path, "rope"))
    words = Page(build_report(runs, tmp_path / "out").read_text()).words
    assert "with 1 seed of some, a difference" in words
    assert "One seed in common: no p." in words


def test_whatever_else_differs_is_at_the_top(tmp_path: Path) -> None:
    model = {"width": 256, "layers": 4, "heads": 4}
    runs = [write_run(tmp_path, "rope"), write_run(tmp_path, "alibi", config={"model": model})]
    words = Page(build_report(runs, tmp_path / "out").read_text()).words
    differs = "these settings differ between runs: model.width 128 of rope, 256 of alibi."
    assert differs in words and differs in (tmp_path / "out" / "table.txt").read_text()
    assert "between runs that differ in other settings as well: model.width." in words
    assert "Nothing but" not in words


def test_words_from_run_folders_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&"
    config = {"data": {"source": evil}}
    run = write_run(tmp_path, "rope", config=config, row={"text_sha256": evil, "split": evil})
    html = build_report([run], tmp_path / "out").read_text()
    assert html.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in html
    assert Page(html).asks == []


def test_csv_text_and_png_lie_beside_the_page(tmp_path: Path) -> None:
    build(tmp_path, "learned", "rope")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "index.html", "table.csv", "pairs.csv", "gains.csv", "table.txt",
        *(f"{stem}.{kind}" for stem in ("suffix", "per-position", "training")
          for kind in ("png", "svg")),
    }  # fmt: skip
    assert "not defined beyond 128" in (out / "table.csv").read_text()
    assert "learned: not defined beyond 128." in (out / "table.txt").read_text()


def test_a_page_is_replaced_only_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, "rope")
    page = tmp_path / "out" / "index.html"
    before = page.read_bytes()

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.report.page.save_png", broken)
    with pytest.raises(StorageError, match="No space left"):
        build_report([write_run(tmp_path, "alibi")], tmp_path / "out")
    assert page.read_bytes() == before


def test_files_of_two_reports_never_stand_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the user stay."""
    runs = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    out = tmp_path / "out"
    build_report(runs[:1], out)
    for name in ("notes.md", "needle.png", "tasks.csv", "needle-passkey.svg", "tasks.png"):
        (out / name).write_text("older")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("Path.write_text", "save_png"):
        with monkeypatch.context() as patched:
            patched.setattr(f"pipeline.report.page.{broken}", full)
            with pytest.raises(StorageError, match="No space left"):
                build_report(runs[1:], out)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    build_report(runs[1:], out)
    now = {path.name: path.read_bytes() for path in out.iterdir()}
    assert before.keys() - now.keys() == {"tasks.csv", "needle-passkey.svg", "tasks.png"}
    kept = {name for name in now if now[name] == before[name]}
    assert kept == {"notes.md", "needle.png", "pairs.csv"}  # one encoding alone has no pairs


def test_a_move_that_fails_leaves_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    build_report(runs[:1], tmp_path / "out")
    moves: list[str] = []

    def broken(source: Path, target: Path) -> None:
        moves.append(target.name)
        if len(moves) == 3:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("pipeline.report.output.os.replace", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        build_report(runs[1:], tmp_path / "out")
    assert not (tmp_path / "out" / "index.html").exists() and "index.html" not in moves


def test_runs_that_cannot_be_compared_leave_nothing(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "rope"), write_run(tmp_path, "alibi", row={"text_sha256": "other"})]
    with pytest.raises(DataError, match="text_sha256"):
        build_report(runs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.out: the report cannot be written"):
        build_report([write_run(tmp_path, "rope")], tmp_path / "file" / "out")


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    code = (
        "import sys; from pathlib import Path; from pipeline.report.page import build_report\n"
        "build_report([Path(sys.argv[1])], Path(sys.argv[2])); assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(run), str(tmp_path / "out")]
    subprocess.run(command, cwd=ROOT, check=True)


def _addresses(html: str) -> list[str]:
    """What follows every ``url(`` of the page."""
    return [part[:1] for part in html.split("url(")[1:]]
