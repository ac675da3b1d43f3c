"""Small pieces of HTML and of wording that several sections share."""

from collections.abc import Sequence
from html import escape

from pipeline.report.collect import Cell, Study
from pipeline.report.drawing import COLOURS, short_number
from pipeline.report.reading import Run
from pipeline.report.table import beyond, setting, shown

# What stands in the place of means while seeds are chosen.
NO_MEANS = (
    '<p class="seeds-chosen">These numbers are over all seeds, so they are not shown while some '
    'seeds are left out: <a href="#runs">Runs</a> has each seed.</p>'
)
THIN_LINES = (
    '<p class="seeds-chosen">Some seeds are left out: means over all seeds and their bands are '
    "hidden, and what is shown is of single seeds.</p>"
)


def table(head: str, body: str, *, sort: str = "", means: bool = False) -> str:
    """A table that scrolls inside the page where it is wider than the screen.

    Args:
        sort: what a click on a column title puts in order: "groups", the rows of an encoding as
            one, or "rows"; nothing by default.
        means: whether numbers are over several seeds, so that they go when seeds are chosen.
    """
    over = ' class="scroll over-seeds"' if means else ' class="scroll"'
    by = f' data-sort="{sort}"' if sort else ""
    html = f"<div{over}><table{by}><thead><tr>{head}</tr></thead>{body}</table></div>"
    return html + (NO_MEANS if means else "")


def figure(svg: str, name: str, caption: str) -> str:
    """A section with one picture and what it shows."""
    title = escape(name)
    thin = THIN_LINES if 'data-kind="mean"' in svg else ""
    return (
        f'<section><h2>{title}</h2>{thin}<figure role="img" aria-label="{title}">{svg}'
        f"<figcaption>{escape(caption)}</figcaption></figure></section>"
    )


def over_seeds(study: Study) -> bool:
    """Whether numbers of encodings are over several seeds."""
    return any(len(runs) > 1 for runs in study.encodings.values())


def heads(names: Sequence[str]) -> str:
    """Column titles of a table about text and numbers."""
    return "".join(f"<th>{escape(name)}</th>" for name in names)


def length_heads(study: Study, lengths: Sequence[int]) -> str:
    """Column titles of a table by length, the train length marked."""
    marks = [' class="trained"' if n == study.train_length else "" for n in lengths]
    return "".join(f"<th{mark}>{n}</th>" for mark, n in zip(marks, lengths, strict=True))


def encoding(study: Study, label: str, rows: int = 1, **more: object) -> str:
    """The title of an encoding's rows, with the colour it has in the pictures.

    ``more``: what else the rows are of, as `title_of` takes it.
    """
    return title_of(list(study.encodings).index(label), label, rows, **more)


def title_of(number: int, label: str, rows: int = 1, **more: object) -> str:
    """The title of the rows of the encoding with this place; ``more`` names a ``seed`` that they
    are of, or the place of the encoding that they are ``against``."""
    marks = "".join(f' data-{key}="{escape(str(value))}"' for key, value in more.items())
    return f'<th rowspan="{rows}" data-encoding="{number}"{marks}>{dot(number)}{escape(label)}</th>'


def dot(number: int) -> str:
    """The colour of the encoding with this place."""
    return f'<span class="dot c{number % len(COLOURS)}"></span>'


def cell(text: str, value: float | None = None) -> str:
    """One cell of a table; ``value`` is what it is sorted by where the text is no plain number."""
    return f"<td>{text}</td>" if value is None else f'<td data-value="{value:.9g}">{text}</td>'


def length_cells(
    study: Study, label: str, lengths: Sequence[int], cells: Sequence[Cell | None], value: str
) -> str:
    """One row of cells by length; neighbours that are not defined become one cell that says so."""
    html, place = "", 0
    while place < len(cells):
        end, cell = place + 1, cells[place]
        if cell is not None and cell.reason:
            while end < len(cells) and (following := cells[end]) and following.reason:
                end += 1
            text = escape(beyond(study, label) or cell.reason)
            html += f'<td class="undefined" colspan="{end - place}">{text}</td>'
        else:
            mark = ' class="trained"' if lengths[place] == study.train_length else ""
            number, sign, half = shown(cell, value).partition(" ±")
            html += f"<td{mark}>{number}{f'<small>{sign}{half}</small>' if half else ''}</td>"
        place = end
    return html


def tokens_of(run: Run) -> int:
    """Training tokens behind the evaluated weights, those of runs that this one continues too."""
    before = sum(int(one["tokens"]) for one in run.lineage)
    return before + max(int(row["tokens"]) for row in run.rows)


def spanned(values: Sequence[float]) -> str:
    """``1.2M``, or ``1.2M to 3M`` if they differ."""
    low, high = short_number(min(values)), short_number(max(values))
    return low if low == high else f"{low} to {high}"


def counted(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(values: Sequence[object]) -> str:
    """Values with commas between them."""
    return ", ".join(map(setting, values))


def items(lines: Sequence[str]) -> str:
    """A list of plain lines."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
