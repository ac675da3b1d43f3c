"""One self-contained HTML page about a study: table, pictures, and what may be concluded.

The page asks nothing of any network: style, script and pictures are inside it. Everything that
comes out of run folders is escaped.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path

from pipeline.report.appendix import cost_table, other_protocols, protocol, provenance
from pipeline.report.capability import capability_section
from pipeline.report.collect import Study, collect
from pipeline.report.context_use import context_section
from pipeline.report.curves import draw
from pipeline.report.differences import differences_section
from pipeline.report.filters import filter_panel
from pipeline.report.fragments import figure
from pipeline.report.gains import find_gains, gains_csv
from pipeline.report.output import draw_svg, file_svg, page_svg, replaced_report, save_png
from pipeline.report.pairs import find_pairs, pairs_csv
from pipeline.report.probe_pictures import draw_probes
from pipeline.report.probes import find_probes, numbers_of, probes_section
from pipeline.report.runs import runs_section
from pipeline.report.sections import conclusions, lead, main_table, title
from pipeline.report.shell import whole_page
from pipeline.report.table import csv_table, text_table
from pipeline.report.task_pictures import draw_tasks
from pipeline.report.task_shares import shares_csv, tasks_csv, tasks_of
from pipeline.report.tasks import tasks_section
from pipeline.report.values import read_values

CAPTIONS = {
    "suffix": (
        "Loss as the context grows",
        "Loss of the same last tokens of the same documents while only the context before them "
        "grows; bands are the intervals of the table. Dashed: the window control, the same model "
        "seeing no more than its train length at a time. A line below its dashed line has used the "
        "longer context; a line above it would have done better without.",
    ),
    "per-position": (
        "Loss at each position",
        "Mean loss of the token at each position of whole pieces of text, as long as the encoding "
        "is defined for. Where a line turns up behind the train length, the encoding fails.",
    ),
    "training": (
        "Training",
        "Every seed is a line. The evaluations on the way use few documents: they show the course "
        "of training, not the result.",
    ),
}


def build_report(folders: Sequence[Path], out: Path) -> Path:
    """Write ``index.html``, ``table.csv``, ``pairs.csv``, ``gains.csv``, ``table.txt``, a PNG and
    an SVG of each picture, and, if there are task rows, ``tasks.csv`` and ``task_shares.csv`` into
    ``out``.

    Returns the path of the page. Raises DataError if the runs cannot be compared, StorageError if
    ``out`` cannot be written: an older report there stays as it was. No file of an older one is
    left beside a new one.
    """
    study = collect(folders)
    probes = find_probes(study)
    with ThreadPoolExecutor(1) as pool:
        # inflating what runs keep needs no interpreter, and drawing needs little else
        reading = pool.submit(read_values, study)
        figures = {**draw(study), **draw_tasks(study), **draw_probes(study, probes)}
        drawn = {stem: draw_svg(figure, stem) for stem, figure in figures.items()}
        values = reading.result()
    pairs, gains = find_pairs(study, values), find_gains(study, values)
    comparison = [differences_section(study, pairs), context_section(study, gains)]
    pictures = {stem: page_svg(figure, drawn[stem]) for stem, figure in figures.items()}
    panel = filter_panel(study, numbers_of(study, probes))
    html = render(study, pictures, panel, comparison, probes_section(study, probes, pictures))
    texts = {
        "table.csv": csv_table(study), "table.txt": text_table(study),
        "pairs.csv": pairs_csv(pairs), "gains.csv": gains_csv(study, gains), "index.html": html,
    }  # fmt: skip
    if tasks_of(study):
        texts |= {"tasks.csv": tasks_csv(study), "task_shares.csv": shares_csv(study)}
    texts |= {f"{stem}.svg": file_svg(drawn[stem]) for stem in figures}
    with replaced_report(out, "index.html") as partial:
        for name, text in texts.items():
            (partial / name).write_text(text, encoding="utf-8")
        for stem, figure in figures.items():
            save_png(figure, partial / f"{stem}.png")
    return out / "index.html"


def render(
    study: Study, pictures: dict[str, str], panel: str, comparison: Sequence[str], probed: str
) -> str:
    """The whole page; ``pictures`` maps the names that ``curves.draw`` gives to SVG elements,
    ``panel`` chooses what is shown, ``comparison`` are the sections that set encodings and lengths
    against each other, ``probed`` the one about the inside of the models.
    """
    heading = escape(title(study))
    parts = [
        f"<h1>{heading}</h1>",
        lead(study),
        panel,
        main_table(study),
        _figure(pictures, "suffix"),
        conclusions(study),
        *comparison,
        capability_section(study),
        runs_section(study),
        _figure(pictures, "per-position"),
        tasks_section(study, pictures),
        probed,
        _figure(pictures, "training"),
        cost_table(study),
        other_protocols(study),
        protocol(study),
        provenance(study),
    ]
    return whole_page(heading, "\n".join(part for part in parts if part))


def _figure(pictures: dict[str, str], stem: str) -> str:
    if stem not in pictures:
        return ""
    return figure(pictures[stem], *CAPTIONS[stem])
