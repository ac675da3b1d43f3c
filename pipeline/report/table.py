"""The main table, encoding by length, as plain text and as CSV; the page shows the same numbers."""

import csv
import io
from collections.abc import Sequence

from pipeline.config.label import shown as shown_setting
from pipeline.report.collect import Cell, Study
from pipeline.report.comparable import flat_settings
from pipeline.report.lineage import origin_note

PROTOCOLS = ("suffix", "window control", "sliding", "non-overlapping")
# What stands under each encoding: title, protocol, what of its cell is shown.
LINES = (
    ("suffix loss", "suffix", "loss"),
    ("perplexity", "suffix", "perplexity"),
    ("window control", "window control", "bare loss"),
)
CSV_COLUMNS = (
    "encoding", "extension", "protocol", "length", "defined", "loss", "spread", "spread_over",
    "perplexity", "bits_per_byte", "seeds", "documents", "scored_tokens", "reason",
)  # fmt: skip


def text_table(study: Study) -> str:
    """Suffix loss, perplexity and window control by encoding and length, for a terminal."""
    lengths = study.lengths("suffix")
    rows = [["encoding", "", *(f"{length}" for length in lengths)]]
    for label in study.encodings:
        for title, protocol, value in LINES:
            name = label if (title, protocol, value) == LINES[0] else ""
            cells = [main_cell(study, label, protocol, length) for length in lengths]
            rows.append([name, title, *(shown(cell, value) for cell in cells)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *notes(study), *varied_lines(study)]) + "\n"


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
                    writer.writerow(_csv_line(study, label, protocol, length, cell))
    return out.getvalue()


def main_cell(study: Study, label: str, protocol: str, length: int) -> Cell | None:
    """The cell that the main table shows under a length."""
    if protocol == "window control":
        return study.control(label, length)
    return study.cell(label, protocol, length)


def shown(cell: Cell | None, value: str) -> str:
    """One cell as text; "-" if it was not measured."""
    if cell is None:
        return "-"
    if cell.loss is None:
        return "not defined"
    if value == "perplexity":
        return _perplexity(cell.perplexity)
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
        return "± 95 % interval over seeds (t)"
    if all(len(runs) == 1 for runs in study.encodings.values()):
        return "± 95 % interval over documents (t, one seed)"
    single = named([label for label, runs in study.encodings.items() if len(runs) == 1])
    return f"± 95 % interval (t) over seeds; of {single}, with one seed, over documents"


def varied_lines(study: Study) -> list[str]:
    """A line if anything but the encoding differs between runs, with who has what."""
    if not study.varied:
        return []
    said = []
    for key in study.varied:
        holders: dict[str, list[str]] = {}
        for label, runs in study.trained.items():
            for run in runs:
                settings = flat_settings(run.config)
                if key in settings:
                    labels = holders.setdefault(setting(settings[key]), [])
                    labels += [label] if label not in labels else []
        values = (f"{value} of {named(labels)}" for value, labels in holders.items())
        said.append(f"{key} {', '.join(values)}")
    return [f"Besides the encoding, these settings differ between runs: {'; '.join(said)}."]


def named(labels: Sequence[str]) -> str:
    """These encodings, or how many they are where a line would not hold them."""
    return ", ".join(labels) if len(labels) <= 4 else f"{len(labels)} encodings"


def setting(value: object) -> str:
    """The value of a setting in words of a report: text as it is."""
    return value if isinstance(value, str) else shown_setting(value)


def notes(study: Study) -> list[str]:
    """Lines that belong under every rendering of the table."""
    found = [
        f"Nats per token over the same last tokens of the same documents; {interval(study)}.",
        f"Trained at {study.train_length} tokens. Window control: the same model on the same "
        f"tokens, seeing no more than {study.train_length} tokens at a time.",
    ]
    if len(study.trained) < len(study.encodings):
        found.append(
            "ENCODING + EXTENSION: the trained encoding, changed when it is tested; nothing was "
            "trained for it."
        )
    origins = (origin_note(label, runs) for label, runs in study.trained.items())
    found += [note for note in origins if note]
    ended = {label: beyond(study, label) for label in study.encodings}
    return found + [f"{label}: {text}." for label, text in ended.items() if text]


def _perplexity(value: float | None) -> str:
    if value is None:
        return "over 1e299"
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value < 1e6 else f"{value:.2e}"


def _csv_line(study: Study, label: str, protocol: str, length: int, cell: Cell) -> list[object]:
    over = "seeds" if cell.seeds > 1 else "documents"
    reason = f"{beyond(study, label)}: {cell.reason}" if cell.reason else ""
    extension = study.encodings[label][0].extension or "none"
    return [
        label, extension, protocol, length, str(cell.loss is not None).lower(), cell.loss,
        cell.spread, over if cell.spread is not None else "", cell.perplexity, cell.bits_per_byte,
        cell.seeds, cell.documents, cell.scored_tokens, reason,
    ]  # fmt: skip
