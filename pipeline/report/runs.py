"""The section "Runs": every run alone, a line each, for those who look at single seeds."""

from pipeline.report.appendix import in_bytes
from pipeline.report.collect import Study
from pipeline.report.drawing import short_number
from pipeline.report.fragments import cell, encoding, heads, length_cells, length_heads, table
from pipeline.report.reading import Run

NOTES = (
    "Suffix loss of each run in nats per token, ± half of its 95 % interval over documents, which "
    "says nothing of other seeds. Of means over seeds the first table speaks. A click on a column "
    "title puts any table with such titles in order, a second click the other way round."
)


def runs_section(study: Study) -> str:
    """One row for each run and each test of a run under an extension."""
    lengths = study.lengths("suffix")
    rows = "".join(
        _row(study, label, run, lengths) for label, runs in study.encodings.items() for run in runs
    )
    last = heads(["last training loss", "tokens per second", "peak memory of a rank"])
    head = f"<th>encoding</th><th>seed</th>{length_heads(study, lengths)}{last}"
    body = f'<tbody class="encoding">{rows}</tbody>'
    said = f'<div class="notes"><p>{NOTES}</p></div>'
    return f'<section id="runs"><h2>Runs</h2>{table(head, body, sort="rows")}{said}</section>'


def _row(study: Study, label: str, run: Run, lengths: list[int]) -> str:
    seed, summary = run.config["seed"], run.summary
    found = [study.cell(label, "suffix", length, seed) for length in lengths]
    cells = (
        cell(str(seed)),
        length_cells(study, label, lengths, found, "loss"),
        cell(f"{summary['final_loss']:.3f}"),
        cell(short_number(summary["tokens_per_second"]), summary["tokens_per_second"]),
        cell(in_bytes(summary["peak_memory_bytes"]), summary["peak_memory_bytes"]),
    )
    return f"<tr>{encoding(study, label, seed=seed)}{''.join(cells)}</tr>"
