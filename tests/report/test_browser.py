"""The page in a real browser: sorting, filtering, numbers under the pointer, and silence."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pipeline.report.page import build_report
from tests.report.browser import Opened, chromium
from tests.report.synthetic import loss_at, write_run
from tests.report.test_tasks import made, write_tasks

NAMES = ("learned", "rope", "alibi")
ENCODING = {name: number for number, name in enumerate(NAMES)}
SUFFIX = "figure[aria-label='Loss as the context grows']"
MEANS, SEEDS = (f"{SUFFIX} g[data-kind={kind}]" for kind in ("mean", "seed"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about three encodings of three families, three seeds each, with tasks."""
    root = tmp_path_factory.mktemp("study")
    return build_report(made(root, *NAMES, seeds=3), root / "out")


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Opened]:
    found = Opened(browser, report)
    yield found
    found.page.context.close()
    assert found.said == []


def choose(opened: Opened, name: str, value: object, to: bool = False) -> None:
    """Check or uncheck a box of the panel."""
    if not opened.page.locator("#filter .choices").is_visible():
        opened.page.click("#filter summary")
    opened.page.locator(f"#filter input[name={name}][value='{value}']").set_checked(to)


def losses(length: int) -> list[float]:
    """Suffix losses of the runs in the order of the page; infinite where not defined."""
    found = (loss_at(name, length, seed) for name in NAMES for seed in range(3))
    return [float("inf") if loss is None else loss for loss in found]


def test_at_first_everything_but_single_seeds_is_there(opened: Opened) -> None:
    assert opened.visible("section h2") >= 12
    assert opened.visible(f"{SUFFIX} svg") == 1
    # a line, a band and a window control of each encoding, in two panels
    assert opened.visible(MEANS) == 3 * 3 * 2 and opened.visible(SEEDS) == 0
    assert opened.visible(".seeds-chosen") == 0
    expect(opened.page.locator("#shown")).to_have_text("everything is shown")
    opened.keep("top")


def test_a_click_sorts_and_another_one_turns_it_round(opened: Opened) -> None:
    title = opened.page.locator("#runs thead th", has_text="2048")
    assert title.get_attribute("aria-sort") is None
    known = sorted(loss for loss in losses(2048) if loss != float("inf"))
    for order, expected in (("ascending", known), ("descending", known[::-1])):
        title.locator("button").click()
        assert title.get_attribute("aria-sort") == order
        shown = opened.column("#runs", 7)
        numbers = [text.partition(" ")[0] for text in shown[: len(known)]]
        assert numbers == [f"{loss:.3f}" for loss in expected]
        # what is not defined comes last both ways
        assert opened.column("#runs", 0)[len(known) :] == ["learned"] * 3


def test_rows_of_an_encoding_stay_together(opened: Opened) -> None:
    table = opened.page.locator("table[data-sort=groups]").first
    table.locator("thead button", has_text="1024").click()
    bodies = table.locator("tbody").all()
    assert [body.locator("th").inner_text() for body in bodies] == ["alibi", "rope", "learned"]
    assert all(body.locator("tr").count() == 3 for body in bodies)


@pytest.mark.parametrize(
    ("name", "value"), [("encoding", ENCODING["rope"]), ("family", "rotation")]
)
def test_encodings_and_families_are_filtered(opened: Opened, name: str, value: object) -> None:
    gone = f"main [data-encoding='{ENCODING['rope']}']"
    assert opened.visible(f"{SUFFIX} {gone.removeprefix('main ')}") > 0
    choose(opened, name, value)
    assert opened.visible(gone) == 0
    assert set(opened.column("#runs", 0)) == {"learned", "alibi"}
    assert opened.visible(MEANS) == 2 * 3 * 2
    # pairs with it are gone too, from either side
    pairs = "section:has(> h2:text-is('Differences'))"
    assert {*opened.column(pairs, 0), *opened.column(pairs, 1)} == {"learned", "alibi"}
    expect(opened.page.locator("#shown")).to_have_text("2 of 3 encodings")
    choose(opened, name, value, True)
    assert set(opened.column("#runs", 0)) == set(NAMES)


def test_a_mean_never_stands_for_chosen_seeds(opened: Opened) -> None:
    choose(opened, "seed", 1)
    assert opened.visible("main [data-kind=mean]") == 0
    assert opened.visible(".over-seeds") == 0
    assert opened.column("#runs", 1) == ["0", "2"] * 3
    # a line and a window control of each seed, in two panels
    for seed, lines in ((0, 3 * 2 * 2), (1, 0), (2, 3 * 2 * 2)):
        assert opened.visible(f"{SEEDS}[data-seed='{seed}']") == lines
        assert (opened.visible(f"g[data-kind=run][data-seed='{seed}']") > 0) == (lines > 0)
    assert opened.visible(f"{SUFFIX} .points circle[data-kind=seed]") > 0
    said = opened.page.locator("#shown").inner_text()
    assert said.startswith("all encodings, only seed 0, 2: means and intervals over seeds are")
    assert opened.visible(".seeds-chosen") >= 5
    opened.keep("seeds")
    opened.page.click("button[data-set=seed][data-to=all]")
    assert opened.visible(SEEDS) == 0 and opened.visible(MEANS) == 18


def test_no_seed_and_no_encoding_leave_no_row(opened: Opened) -> None:
    for name in ("encoding", "seed"):
        opened.page.click("#filter summary")
        opened.page.click(f"button[data-set={name}][data-to=none]")
        assert opened.column("#runs", 0) == [] and opened.visible("main .points circle") == 0
        opened.page.click(f"button[data-set={name}][data-to=all]")
        opened.page.click("#filter summary")


def test_the_keyboard_does_it_all(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    for _ in range(3):  # past the buttons "all" and "none"
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert set(opened.column("#runs", 0)) == {"rope", "alibi"}
    page.locator("#runs thead button").nth(1).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("#runs th[aria-sort=descending]").inner_text().strip() == "seed"
    assert opened.column("#runs", 1) == ["2", "2", "1", "1", "0", "0"]


def test_a_point_tells_its_numbers(opened: Opened) -> None:
    point = opened.page.locator(f"{SUFFIX} .points circle[data-encoding='1']").nth(4)
    point.hover(force=True)
    tip = opened.page.locator("#tip")
    expect(tip).to_be_visible()
    mean = sum(loss_at("rope", 1024, seed) or 0.0 for seed in range(3)) / 3
    assert re.search(rf"^rope, 3 seeds, 1024 tokens: {mean:.3f} ± \d", tip.inner_text(), re.M)
    opened.keep("point")
    opened.page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


def test_dark_narrow_and_paper(opened: Opened) -> None:
    page = opened.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light
    opened.keep("dark")
    page.emulate_media(media="print")
    assert page.evaluate(ground) == light
    assert opened.visible("#filter .choices") == 0 and opened.visible("section h2") >= 12
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.scrollingElement.scrollWidth") == 400
    opened.keep("narrow")


def test_no_column_is_lost_on_paper(opened: Opened) -> None:
    page = opened.page
    paper = page.pdf(prefer_css_page_size=True)
    (width, height), *_ = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", paper)
    assert float(width) > float(height)
    page.emulate_media(media="print")
    # 11 inches without two centimetres
    page.set_viewport_size({"width": 980, "height": 700})
    lost = "all => all.filter((one) => one.scrollWidth > one.parentElement.clientWidth).length"
    assert page.locator("table").evaluate_all(lost) == 0
    hidden = "all => all.filter((one) => getComputedStyle(one).overflowX !== 'visible').length"
    assert page.locator(".scroll, figure, pre").evaluate_all(hidden) == 0
    size = "(one) => parseFloat(getComputedStyle(one).fontSize)"
    first = page.locator("tbody td").nth(2)
    assert first.evaluate(size) >= page.locator(".quiet td").first.evaluate(size)


def test_without_a_script_everything_is_shown(browser: Browser, report: Path) -> None:
    plain = Opened(browser, report, script=False)
    assert plain.visible(MEANS) == 18 and plain.visible(SEEDS) == 0
    assert len(plain.column("#runs", 0)) == 9
    assert plain.visible("#filter") == 0 and plain.visible("noscript p") == 1
    assert plain.page.locator(".points circle title").count() > 0
    plain.page.context.close()
    assert plain.said == []


EVIL = """"><script>alert(1)</script><img src=x onerror=alert(2)> style="x" $y & </style>'"""


@pytest.mark.filterwarnings("error:constrained_layout")
def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    runs = [
        write_tasks(write_run(tmp_path / str(n), "rope", config={"model": {EVIL: value}}), "rope")
        for n, value in enumerate((EVIL, "plain"))
    ]
    found = Opened(browser, build_report(runs, tmp_path / "out"))
    for place in ("#runs tbody th", "#filter label", f"{SUFFIX} svg text"):
        assert "<script>alert(1)</script>" in "".join(found.page.locator(place).all_text_contents())
    assert found.page.locator("script").count() == 1 and found.page.locator("img").count() == 0
    choose(found, "encoding", 1)
    assert len(found.column("#runs", 0)) == 1
    found.page.context.close()
    assert found.said == []
