"""One self-contained HTML page about a study, with a table, pictures and what may be concluded.

The page asks for nothing from any network: styles and pictures are inside it. Everything that comes out
of run folders is escaped.
"""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pipeline.errors import StorageError
from pipeline.report import sections
from pipeline.report.collect import Study, collect
from pipeline.report.curves import as_svg, draw, save_png
from pipeline.report.style import CSS
from pipeline.report.table import csv_table, text_table


def build_report(folders: Sequence[Path], out: Path) -> Path:
    """Write ``index.html``, ``table.csv``, ``table.txt`` and one PNG per picture into ``out``.

    Returns the path of the page. Raises DataError if the runs cannot be compared, StorageError if
    ``out`` cannot be written; the page itself is replaced last, whole.
    """
    study = collect(folders)
    figures = draw(study)
    pictures = {stem: as_svg(figure) for stem, figure in figures.items()}
    page = out / "index.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.csv").write_text(csv_table(study), encoding="utf-8")
        (out / "table.txt").write_text(text_table(study), encoding="utf-8")
        for stem, figure in figures.items():
            save_png(figure, out / f"{stem}.png")
        partial = out / "index.html.partial"
        partial.write_text(render(study, pictures), encoding="utf-8")
        os.replace(partial, page)
    except OSError as error:
        raise StorageError(f"{out}: the report cannot be written: {error.strerror}") from error
    return page


def render(study: Study, pictures: dict[str, str]) -> str:
    """The whole page; ``pictures`` maps the names of ``curves.draw`` to SVG elements."""
    title = sections.title(study)
    parts = [
        f"<h1>{escape(title)}</h1>",
        sections.lead(study),
        sections.main_table(study),
        _figure(pictures, "suffix", "Loss as the context grows", sections.SUFFIX_CAPTION),
        sections.conclusions(study),
        _figure(pictures, "per-position", "Loss at each position", sections.POSITION_CAPTION),
        _figure(pictures, "training", "Training", sections.TRAINING_CAPTION),
        sections.cost_table(study),
        sections.other_protocols(study),
        sections.protocol(study),
        sections.provenance(study),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _figure(pictures: dict[str, str], stem: str, title: str, caption: str) -> str:
    if stem not in pictures:
        return ""
    return (
        f'<section><h2>{title}</h2><figure role="img" aria-label="{title}">{pictures[stem]}'
        f"<figcaption>{caption}</figcaption></figure></section>"
    )
