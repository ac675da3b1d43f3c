from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from pipeline.record.metrics import read_rows
from pipeline.report.collect import Study, collect
from pipeline.report.curves import draw, suffix_figure, training_figure
from pipeline.report.drawing import COLOURS, DASHED, INK, short_number
from pipeline.report.output import draw_svg, page_svg, save_png
from pipeline.report.picture import Picture
from tests.report.synthetic import LENGTHS, loss_at, write_extended, write_rows, write_run

NAMES = ("learned", "rope", "alibi")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return collect([write_run(tmp_path, name) for name in NAMES])


def line(axes: Axes, label: str) -> Line2D:
    """The line of an encoding that is named in the legend."""
    return next(found for found in axes.lines if found.get_label() == label)


def as_svg(figure: Picture, name: str) -> str:
    """A picture as a page has it."""
    return page_svg(figure, draw_svg(figure, name))


def xs(drawn: Line2D) -> list[float]:
    return [float(value) for value in np.atleast_1d(np.asarray(drawn.get_xdata()))]


def ys(drawn: Line2D) -> list[float]:
    return [float(value) for value in np.atleast_1d(np.asarray(drawn.get_ydata()))]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_main_picture_has_a_line_per_encoding_over_log_length(study: Study) -> None:
    axes = suffix_figure(study).axes[0]
    assert axes.get_xscale() == "log"
    for name in ("rope", "alibi"):
        drawn = line(axes, name)
        assert xs(drawn) == list(LENGTHS)
        assert ys(drawn) == [loss_at(name, length, 0) for length in LENGTHS]
    assert len({to_hex(line(axes, name).get_color()) for name in NAMES}) == 3
    assert len({line(axes, name).get_marker() for name in NAMES}) == 3


def test_the_line_of_an_encoding_that_ends_ends_and_says_so(study: Study) -> None:
    for axes in suffix_figure(study).axes:
        drawn = next(x for x in axes.lines if to_hex(x.get_color()) == COLOURS[0])
        assert xs(drawn) == [64, 128]
        bar = next(found for found in axes.lines if found.get_marker() == "|")
        assert xs(bar) == [128]
        assert to_hex(bar.get_color()) == COLOURS[0]
        assert "learned: not defined beyond 128" in texts(axes)


def test_the_train_length_is_marked(study: Study) -> None:
    for figure in (draw(study)["suffix"], draw(study)["per-position"]):
        for axes in figure.axes:
            assert "trained up to here" in texts(axes)
            assert any(xs(found) == [128, 128] for found in axes.lines)


def test_the_window_control_is_a_dashed_level_in_the_colour_of_its_encoding(study: Study) -> None:
    axes = suffix_figure(study).axes[0]
    levels = {
        to_hex(found.get_color()): (xs(found), ys(found))
        for found in axes.lines
        if found.get_linestyle() == "--" and to_hex(found.get_color()) != INK
    }
    assert levels == {
        COLOURS[number]: ([128, 2048], [loss_at(name, 128, 0)] * 2)
        for number, name in enumerate(NAMES)
    }


def test_intervals_are_bands(study: Study) -> None:
    axes = suffix_figure(study).axes[0]
    bands = [band.get_paths()[0].get_extents() for band in axes.collections]
    assert len(bands) == 3
    rope = [loss_at("rope", length, 0) or 0 for length in LENGTHS]
    assert bands[1].y1 == pytest.approx(max(rope) + 0.0408, abs=1e-4)
    assert bands[1].y0 == pytest.approx(min(rope) - 0.0408, abs=1e-4)


def test_a_close_up_appears_only_where_failures_press_the_rest_together(
    study: Study, tmp_path: Path
) -> None:
    both = suffix_figure(study).axes
    assert len(both) == 2
    assert both[1].get_ylim()[1] < 4 < both[0].get_ylim()[1]
    calm = collect([write_run(tmp_path / "calm", name) for name in ("alibi", "t5")])
    assert len(suffix_figure(calm).axes) == 1


def test_per_position_lines_stand_in_the_middle_of_their_bins(study: Study) -> None:
    (axes,) = draw(study)["per-position"].axes
    assert xs(line(axes, "rope"))[:3] == [8, 24, 40]
    assert max(xs(line(axes, "learned"))) == 120
    assert "learned: not defined beyond 128" in texts(axes)


def test_training_shows_losses_and_short_evaluations_over_tokens(study: Study) -> None:
    axes = training_figure(study).axes
    assert [panel.get_title() for panel in axes] == [
        "training loss", "suffix loss at 128", "suffix loss at 1024",
    ]  # fmt: skip
    rows = read_rows(study.encodings["rope"][0].path / "metrics.jsonl")
    trained = [(row["tokens"], row["loss"]) for row in rows if row["kind"] == "train"]
    assert list(zip(xs(line(axes[0], "rope")), ys(line(axes[0], "rope")), strict=True)) == trained
    assert [len(xs(panel.lines[1])) for panel in axes] == [30, 3, 3]
    assert xs(axes[2].lines[0]) == []


def test_an_extension_is_a_line_over_length_and_none_over_training(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name) for name in ("rope", "alibi")]
    plain = training_figure(collect(runs))
    write_extended(runs[0], "yarn", "form=code scale=4 alpha=1 beta=32", change=1.0)
    study = collect(runs)
    label = "rope + yarn form=code scale=4 alpha=1 beta=32"
    drawn = line(suffix_figure(study).axes[0], label)
    assert ys(drawn) == [(loss_at("rope", length, 0) or 0) + 1.0 for length in LENGTHS]
    assert to_hex(drawn.get_color()) == COLOURS[1]
    trained = training_figure(study)
    for before, after in zip(plain.axes, trained.axes, strict=True):
        assert [xs(x) for x in before.lines] == [xs(x) for x in after.lines]
    assert {x.get_label() for x in trained.axes[0].lines} == {"rope", "alibi"}
    assert to_hex(line(trained.axes[0], "alibi").get_color()) == COLOURS[2]


@pytest.mark.parametrize("settings", ["", "form=code scale=4 alpha=1 beta=32"])
def test_names_of_any_length_stay_within_the_picture(tmp_path: Path, settings: str) -> None:
    run = write_run(tmp_path, "rope")
    for name in ("yarn", "ntk_by_parts", "longrope", "self_extend", "dual_chunk", "window"):
        write_extended(run, name, settings)
    figure = suffix_figure(collect([run]))
    FigureCanvasAgg(figure).draw()
    (names,) = figure.legends
    assert names.get_window_extent().x1 <= figure.bbox.x1
    assert (names.get_window_extent().height < 60) == (settings == "")


@pytest.mark.parametrize(
    ("layers", "notes"),
    [
        ([4], ["learned: not defined beyond 128"]),
        ([4, 5], [f"learned (layers {n}, widt…: not defined beyond 128" for n in (4, 5)]),
        ([4, 5, 6, 7], ["4 encodings: not defined beyond 128"]),
    ],
)
def test_where_lines_end_is_said_without_taking_room(
    tmp_path: Path, layers: list[int], notes: list[str]
) -> None:
    runs = [write_run(tmp_path, "rope")]
    for number in layers:
        model = {"heads": 4, "layers": number, "width": 32 * number}
        config = {"experiment": f"layers{number}", "model": model}
        runs.append(write_run(tmp_path, "learned", config=config))
    figure = suffix_figure(collect(runs))
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        assert [x.get_text() for x in axes.texts if "not defined" in x.get_text()] == notes
        bars = [line for line in axes.lines if line.get_marker() == "|"]
        assert len(bars) == len(layers)
    assert figure.axes[0].bbox.width > 0.4 * figure.bbox.width


def test_many_names_leave_the_axes_their_height(tmp_path: Path) -> None:
    """And of a name that is wider than the picture all letters stand in it."""
    heights = []
    for count, settings in ((1, ""), (30, "form=code scale=4 " * 12)):
        run = write_run(tmp_path / str(count), "rope")
        for number in range(count):
            write_extended(run, f"yarn{number}", settings.strip())
        figure = suffix_figure(collect([run]))
        FigureCanvasAgg(figure).draw()
        (names,) = figure.legends
        heights.append(figure.axes[0].bbox.height)
        assert names.get_window_extent().y0 >= figure.axes[0].bbox.y1
        assert names.get_window_extent().x1 <= figure.bbox.x1
        said = names.texts[count].get_text().replace("\n", " ")
        assert said == f"rope + {f'yarn{count - 1} {settings}'.strip()}"
    assert heights[1] >= 0.95 * heights[0]


def test_every_seed_is_a_line_of_one_colour_and_named_once(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope", seed) for seed in (0, 1, 2)])
    for name in ("training", "per-position"):
        axes = draw(study)[name].axes[0]
        lines = [found for found in axes.lines if to_hex(found.get_color()) == COLOURS[0]]
        assert [found.get_label() == "rope" for found in lines] == [True, False, False]


def test_a_picture_without_rows_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    write_rows(folder / "metrics.jsonl", [])
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [row for row in read_rows(path) if row["protocol"] != "per-position"])
    assert list(draw(collect([folder]))) == ["suffix"]


def test_an_encoding_that_is_defined_nowhere_can_still_be_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "learned")
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [row for row in read_rows(path) if row["length"] > 128])
    figure = suffix_figure(collect([folder]))
    assert xs(line(figure.axes[0], "learned")) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [64, 128])
def test_a_single_length_is_drawn_without_a_warning(tmp_path: Path, length: int) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [row for row in read_rows(path) if row["length"] == length])
    for stem, figure in draw(collect([folder])).items():
        as_svg(figure, stem)
        save_png(figure, tmp_path / f"{stem}.png")


def test_pictures_take_ink_and_ground_of_the_page(study: Study) -> None:
    svg = as_svg(draw(study)["suffix"], "suffix")
    assert svg.startswith("<svg ")
    assert "currentColor" in svg
    assert "var(--ground)" in svg
    assert INK not in svg
    assert 'width="' not in svg.split(">", 1)[0]


def test_the_same_rows_give_the_same_picture(study: Study) -> None:
    assert as_svg(draw(study)["suffix"], "suffix") == as_svg(draw(study)["suffix"], "suffix")


def test_a_png_is_written(study: Study, tmp_path: Path) -> None:
    save_png(draw(study)["suffix"], tmp_path / "suffix.png")
    assert (tmp_path / "suffix.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (1234567, "1.23M"), (2e9, "2G")]
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


def test_dashes_are_dashes() -> None:
    assert Line2D([], [], linestyle=DASHED).get_linestyle() == "--"
