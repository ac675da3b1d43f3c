"""How a report leaves: pictures as SVG inside the page, and as SVG and PNG for papers; all files of
it together or none."""

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pipeline.errors import StorageError, free_space
from pipeline.report.drawing import GROUND, INK, STYLE
from pipeline.report.picture import GID, Part, Picture

REACH = 6.0  # within how many points of the page's picture a pointer finds a number


_OWN = re.compile(
    r"index\.html|table\.(csv|txt)|(pairs|gains|tasks|task_shares)\.csv"
    r"|(suffix|per-position|training|tasks|probe-(attention|decodability)|needle-\w+)\.(png|svg)"
)


@contextmanager
def replaced_report(out: Path, page: str) -> Iterator[Path]:
    """A folder for the files of a report, which are moved to `out` when the block ends.

    Until then an older report stays as it was; after that none of its files is left. Other files
    in `out` are not touched. While the files are moved there is no `page`.

    Raises:
        StorageError: the disk refuses; before anything is moved, nothing has changed.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=out) as made:
            partial = Path(made)
            yield partial
            new = sorted(partial.iterdir(), key=lambda path: path.name == page)
            (out / page).unlink(missing_ok=True)
            for path in new:
                os.replace(path, out / path.name)
            names = {path.name for path in new}
            for path in out.iterdir():
                if path.name not in names and _OWN.fullmatch(path.name):
                    path.unlink()
    except OSError as error:
        raise StorageError(
            f"{out}: the report cannot be written: {error.strerror}; {free_space(out)}"
        ) from error


def draw_svg(figure: Picture, name: str) -> str:
    """The figure as the text of an SVG file whose parts are marked by their ids.

    ``name`` must differ between the pictures of one page, whose ids it keeps apart. What is drawn
    afterwards is placed as it is here.
    """
    out = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        _settle(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    return out.getvalue()


def page_svg(figure: Picture, drawn: str) -> str:
    """An ``<svg>`` element whose ink is the text colour of the page around it, and whose parts and
    points say what they are of."""
    head, body = drawn[drawn.index("<svg") :].split(">", 1)
    # Without a size of its own the picture takes the width of the page; names of groups would
    # appear several times in a page with several pictures.
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    body = re.sub(GID, _as_data, body)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    # the page has this one rule among its own
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r' (?:d|x|y|transform)="[^"]*"', _rounded, body)
    body = re.sub(r">\s+<", "><", body)
    body = body.replace(INK, "currentColor").replace(GROUND, "var(--ground)")
    found = "".join(_circles(figure))
    return head + ">" + body.replace("</svg>", f'<g class="points">{found}</g></svg>')


def file_svg(drawn: str) -> str:
    """The text of a file of its own, without what a page hides at first."""
    kept, start, depth = "", 0, 0
    for tag in re.finditer(r"<g\b[^>]*(?<!/)>|</g>", drawn):
        if depth == 0 and (found := re.match(GID, tag[0])) and found[2] == "seed":
            kept += drawn[start : tag.start()]
            depth = 1
        elif depth:
            depth += -1 if tag[0] == "</g>" else 1
            start = tag.end()
    return re.sub(r'<g id="e[^"]*"', "<g", kept + drawn[start:])


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure with a white ground, without what a page hides at first. Raises OSError."""
    for artist in figure.findobj(lambda one: "-seed" in (one.get_gid() or "")):
        artist.set_visible(False)
    with matplotlib.rc_context(STYLE):
        FigureCanvasAgg(figure)
        _settle(figure)
        figure.savefig(path, dpi=160, facecolor="white")


def _settle(figure: Figure) -> None:
    """Place everything once: else every drawing would do it again, which takes most of its time."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _as_data(found: re.Match[str]) -> str:
    seed = f' data-seed="{found[3]}"' if found[3] else ""
    return f'<g data-encoding="{found[1]}" data-kind="{found[2]}"{seed}'


def _rounded(attribute: re.Match[str]) -> str:
    """Hundredths of a point are finer than any screen or printer."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0]).replace("\n", "")


def _circles(figure: Picture) -> Iterator[str]:
    """Places for the pointer, with the numbers as what they are titled."""
    size = 72.0 / figure.dpi
    height = figure.get_figheight() * 72.0
    for point in figure.points:
        x, y = point.axes.transData.transform((point.x, point.y))
        if point.axes.bbox.padded(1.0).contains(x, y):
            yield (
                f'<circle cx="{x * size:.1f}" cy="{height - y * size:.1f}" r="{REACH:g}"'
                f"{attributes(point.part)}><title>{escape(point.text)}</title></circle>"
            )


def attributes(part: Part) -> str:
    """How an element of the page says what it is of."""
    seed = "" if part.seed is None else f' data-seed="{part.seed}"'
    return f' data-encoding="{part.encoding}" data-kind="{part.kind}"{seed}'
