"""The section "Use of context": gains, usable lengths, RECL and the power law within."""

from collections.abc import Mapping, Sequence
from html import escape

from pipeline.evaluate.power_law import PowerLaw
from pipeline.evaluate.recl import Reach
from pipeline.report.collect import Study
from pipeline.report.differences import BLANK, shown_interval
from pipeline.report.drawing import short_number
from pipeline.report.fragments import encoding, heads, items, over_seeds, table
from pipeline.report.gains import SHARES, Gains
from pipeline.report.pairs import Interval


def context_section(study: Study, found: Sequence[Gains]) -> str:
    """Two tables, one row for each encoding, and how to read them."""
    gains, measures = _gain_table(study, found), _measure_table(study, found)
    said = items(_how_to_read(study, found))
    return f'<section class="texts"><h2>Use of context</h2>{gains}{measures}{said}</section>'


def _gain_table(study: Study, found: Sequence[Gains]) -> str:
    lengths = sorted({gain.length for own in found for gain in own.gains})
    if not lengths:
        return ""
    bodies = ""
    for own in found:
        gains = {gain.length: gain for gain in own.gains}
        cells = ""
        for length in lengths:
            gain = gains.get(length)
            text = f"{gain.value:z.3f}{_small(gain.over_documents)}" if gain else BLANK
            cells += f"<td>{text}</td>"
        bodies += f"<tr>{encoding(study, own.label)}{cells}</tr>"
    head = heads(["context gain", *map(str, lengths)])
    return _sortable(study, head, bodies)


def _measure_table(study: Study, found: Sequence[Gains]) -> str:
    bodies = ""
    for own in found:
        over = own.usable_over if isinstance(own.usable_over, Interval) else None
        cells = [f"{own.usable or BLANK}{_small(over, 0)}"]
        cells += [_shown_reaches(own.recl[share]) for share in SHARES]
        cells += _shown_law(own.power_law)
        bodies += f"<tr>{encoding(study, own.label)}{''.join(f'<td>{x}</td>' for x in cells)}</tr>"
    columns = [f"RECL, r = {share:g}" for share in SHARES]
    head = heads(["encoding", "usable to", *columns, "α (tokens)", "β", "γ (nats)", "residual"])
    return _sortable(study, head, bodies)


def _sortable(study: Study, head: str, rows: str) -> str:
    body = f'<tbody class="encoding">{rows}</tbody>'
    return table(head, body, sort="rows", means=over_seeds(study))


def _how_to_read(study: Study, found: Sequence[Gains]) -> list[str]:
    lines = [
        f"Context gain: suffix loss at {study.train_length} tokens minus that at the stated length "
        "on the same tokens; positive where more context than was trained with helps. Intervals of "
        "95 % are over documents (paired bootstrap-t, seeds averaged), those over seeds stand in "
        "gains.csv.",
        "Usable to: as in the first table, with the 95 % interval over documents (expanded "
        "percentile bootstrap), among the lengths tested.",
        "RECL: relative effective context length of this group of encodings (Dai et al. 2019, "
        "appendix C), by seed, over the share r of the tokens that are hardest on little context. "
        "Its steps are the lengths tested. ≥: it was still gaining at the longest length that it "
        "is defined at. At every token the smaller of two losses counts, so losses that merely "
        "scatter look like a gain: read it beside the context gain.",
        "α, β, γ: loss(c) = (α / c)^β + γ (Xiong et al. 2023) by least squares over the lengths "
        f"up to {study.train_length} only, fitted to the mean loss over seeds. There is no "
        "interval: few lengths leave much room for α and β, so that encodings cannot be told apart "
        "by them.",
    ]
    if study.train_length not in study.lengths("suffix"):
        lines.append(
            "No context gain: there is no suffix loss at the train length of "
            f"{study.train_length}; add it to eval_lengths."
        )
    reasons: dict[str, list[str]] = {}
    for own in found:
        stated: list[object] = [gain.reason for gain in own.gains]
        stated += [own.usable_over, own.power_law, *own.recl.values()]
        for reason in dict.fromkeys(text for text in stated if isinstance(text, str) and text):
            reasons.setdefault(reason, []).append(own.label)
    for reason, labels in reasons.items():
        who = "All encodings" if len(labels) == len(found) else ", ".join(labels)
        lines.append(f"{who}: {reason}.")
    return lines


def _shown_reaches(reaches: Mapping[int, Reach] | str) -> str:
    if isinstance(reaches, str):
        return BLANK
    return ", ".join(f"{'≥ ' if reach.open else ''}{reach.length}" for reach in reaches.values())


def _shown_law(fit: PowerLaw | str) -> list[str]:
    if isinstance(fit, str):
        return [BLANK] * 4
    # no more digits than a fit without an interval can carry
    alpha = short_number(float(f"{fit.alpha:.2g}"))
    return [alpha, f"{fit.beta:.2g}", f"{fit.gamma:.2f}", f"{fit.residual:.1e}"]


def _small(interval: Interval | None, digits: int = 3) -> str:
    return f" <small>{escape(shown_interval(interval, digits))}</small>" if interval else ""
