"""Small pieces of HTML and of wording that several sections share."""

from collections.abc import Sequence
from html import escape

from pipeline.config.label import shown as shown_setting
from pipeline.report.collect import Cell, Study
from pipeline.report.drawing import look, short_number
from pipeline.report.reading import Run
from pipeline.report.table import beyond, shown


def table(head: str, body: str) -> str:
    """A table that scrolls inside the page where it is wider than the screen."""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>{body}</table></div>'


def figure(svg: str, name: str, caption: str) -> str:
    """A section with one picture and what it shows."""
    title = escape(name)
    return (
        f'<section><h2>{title}</h2><figure role="img" aria-label="{title}">{svg}'
        f"<figcaption>{escape(caption)}</figcaption></figure></section>"
    )


def heads(names: Sequence[str]) -> str:
    """Column titles of a table about text and numbers."""
    return "".join(f"<th>{escape(name)}</th>" for name in names)


def length_heads(study: Study, lengths: Sequence[int]) -> str:
    """Column titles of a table by length, the train length marked."""
    marks = [' class="trained"' if n == study.train_length else "" for n in lengths]
    return "".join(f"<th{mark}>{n}</th>" for mark, n in zip(marks, lengths, strict=True))


def encoding(study: Study, label: str, rows: int = 1) -> str:
    """The title of an encoding's rows, with the colour it has in the pictures."""
    colour, _ = look(list(study.encodings).index(label))
    dot = f'<span class="dot" style="background:{colour}"></span>'
    return f'<th rowspan="{rows}">{dot}{escape(label)}</th>'


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
    return ", ".join(value if isinstance(value, str) else shown_setting(value) for value in values)


def items(lines: Sequence[str]) -> str:
    """A list of plain lines."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
