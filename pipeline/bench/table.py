"""The tables of a bench, as text."""

from collections.abc import Iterator, Sequence
from typing import Any

HEADS = (
    "subject", "length", "seconds", "tokens/s", "ratio", "of", "range", "MFU", "peak MiB",
    "KiB/token", "parameters",
)  # fmt: skip
_LEFT = ("subject", "of", "range", "product")
TITLES = {
    "attention": "attention: forward and backward of one layer's attention, no projections",
    "step": "step: forward, loss, backward and fused AdamW of the whole decoder",
}


def text_table(record: dict[str, Any]) -> str:
    """One table a measure, one of the matrix products, and what the columns mean."""
    lines: list[str] = []
    for measure, title in TITLES.items():
        rows = [row for row in record["results"] if row["measure"] == measure]
        if rows:
            lines += [title, *_aligned(HEADS, [_cells(row) for row in rows]), *_failures(rows), ""]
    lines += ["matrix products, GFLOP/s", *_products(record["products"]), "", *_notes(record)]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    first = [row["subject"], str(row["length"])]
    if row["failure"]:
        return [*first, "failed", *["-"] * (len(HEADS) - 3)]
    known = row["peak_bytes"] is not None
    return [
        *first,
        f"{row['median_seconds']:.4g}",
        f"{row['tokens_per_second']:,.0f}",
        f"{row['ratio']:.2f}" if "ratio" in row else "-",
        row["yardstick"],
        f"{min(row['ratios']):.2f}-{max(row['ratios']):.2f}" if "ratio" in row else "-",
        f"{row['mfu']:.0%}",
        f"{row['peak_bytes'] / 2**20:,.0f}" if known else "-",
        f"{row['bytes_per_token'] / 2**10:,.1f}" if known else "-",
        f"{row['parameters']:,}",
    ]


def _failures(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["failure"]:
            yield f"failed: {row['subject']} at {row['length']}: {row['failure']}"


def _products(products: Sequence[dict[str, Any]]) -> list[str]:
    """The best rate of each product over the lengths it was measured beside."""
    best: dict[str, dict[str, float]] = {}
    for row in products:
        rates = best.setdefault(row["product"], {})
        rates[row["precision"]] = max(rates.get(row["precision"], 0.0), row["flops_per_second"])
    precisions = list(dict.fromkeys(row["precision"] for row in products))
    cells = [
        [name, *(f"{rates[precision] / 1e9:,.0f}" for precision in precisions)]
        for name, rates in best.items()
    ]
    return _aligned(("product", *precisions), cells)


def _notes(record: dict[str, Any]) -> list[str]:
    begin, end = record["load_average"]
    return [
        f"One sequence, {record['precision']}, {record['device']}, {record['threads']} threads, "
        f"rounds: {record['repeats']}; load average {begin:.1f} before, {end:.1f} after.",
        "seconds: median of the rounds. ratio: median over rounds of the time divided by that",
        "of the subject named beside it in the same round. range: the least and the greatest of",
        "these ratios, of one round the same: then nothing is known of the noise. MFU:",
        "pipeline/model/flops.py in that time, against the best product in",
        f"{record['precision']} in the same rounds. peak: the highest memory of one run beyond",
        "weights and optimizer state, in a process of its own.",
    ]


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    every = [heads, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(heads))]
    lines = [
        "  ".join(
            text.ljust(width) if head in _LEFT else text.rjust(width)
            for text, width, head in zip(row, widths, heads, strict=True)
        ).rstrip()
        for row in every
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
