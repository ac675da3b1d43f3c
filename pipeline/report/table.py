"""The main table, encoding by length, as plain text and as CSV; the page shows the same numbers."""

import csv
import io

from pipeline.report.collect import Cell, Study

LINES = (("suffix", "loss"), ("suffix", "perplexity"), ("window control", "bare loss"))
CSV_COLUMNS = (
    "encoding", "protocol", "length", "defined", "loss", "spread", "spread_over", "perplexity",
    "bits_per_byte", "seeds", "documents", "scored_tokens", "reason",
)  # fmt: skip
PROTOCOLS = ("suffix", "window control", "sliding", "non-overlapping")


def text_table(study: Study) -> str:
    """Suffix loss, perplexity and window control of each encoding at each length, for a terminal."""
    lengths = study.lengths("suffix")
    rows = [["encoding", "", *(f"{length}" for length in lengths)]]
    for label in study.encodings:
        for number, (protocol, value) in enumerate(LINES):
            title = "suffix loss" if (protocol, value) == ("suffix", "loss") else value
            cells = [shown(study.cell(label, protocol, length), value) for length in lengths]
            rows.append(
                [
                    "" if number else label,
                    protocol if protocol == "window control" else title,
                    *cells,
                ]
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *notes(study)]) + "\n"


def csv_table(study: Study) -> str:
    """Every cell of every protocol, one a line, with a header; losses in nats per token."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for label in study.encodings:
        for protocol in PROTOCOLS:
            for length in study.lengths(protocol):
                cell = study.cell(label, protocol, length)
                if cell is not None:
                    writer.writerow(_csv_line(label, protocol, length, cell, study))
    return out.getvalue()


def shown(cell: Cell | None, value: str) -> str:
    """One cell as text: the number with its interval, ``not defined``, or a dash if not measured."""
    if cell is None:
        return "-"
    if cell.loss is None:
        return "not defined"
    if value == "perplexity":
        return f"{cell.perplexity:.4g}"
    if value == "bare loss" or cell.spread is None:
        return f"{cell.loss:.3f}"
    return f"{cell.loss:.3f} ± {cell.spread:.3f}"


def beyond(study: Study, label: str) -> str | None:
    """``not defined beyond N`` for an encoding that ends at N, else None."""
    limit = study.limit(label)
    return None if limit is None else f"not defined beyond {limit}"


def interval(study: Study) -> str:
    """What the number behind ± is."""
    if all(len(runs) > 1 for runs in study.encodings.values()):
        return "± one standard deviation over seeds"
    if all(len(runs) == 1 for runs in study.encodings.values()):
        return "± two standard errors over documents (one seed)"
    return "± one standard deviation over seeds, or two standard errors over documents with one seed"


def notes(study: Study) -> list[str]:
    """Lines that belong under every rendering of the table."""
    found = [
        f"Nats per token over the same last tokens of the same documents; {interval(study)}.",
        f"Trained at {study.train_length} tokens. Window control: the same model, seeing its last "
        f"{study.train_length} tokens only.",
    ]
    for label in study.encodings:
        text = beyond(study, label)
        if text:
            found.append(f"{label}: {text} ({_reason(study, label)}).")
    return found


def _reason(study: Study, label: str) -> str:
    cells = (study.cell(label, "suffix", length) for length in study.lengths("suffix"))
    return next(cell.reason for cell in cells if cell is not None and cell.reason)


def _csv_line(label: str, protocol: str, length: int, cell: Cell, study: Study) -> list[object]:
    over = "seeds" if cell.seeds > 1 else "documents"
    ended = beyond(study, label) if cell.reason else None
    reason = "" if not cell.reason else f"{ended}: {cell.reason}" if ended else cell.reason
    return [
        label, protocol, length, str(cell.loss is not None).lower(), cell.loss, cell.spread,
        over if cell.spread is not None else "", cell.perplexity, cell.bits_per_byte, cell.seeds,
        cell.documents, cell.scored_tokens, reason,
    ]  # fmt: skip
