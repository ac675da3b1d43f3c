"""The section "Differences": which encoding is better than which, by how much, how surely."""

from collections.abc import Sequence
from html import escape

from pipeline.report.collect import Study
from pipeline.report.fragments import counted, encoding, heads, items, over_seeds, table
from pipeline.report.pairs import SURE, Interval, Pair, ranking

# With more encodings than this, pairs stand in a matrix for some lengths, and all in the CSV.
MOST_IN_TABLES = 6
COLUMNS = (
    "encoding", "against", "difference", "over documents", "over seeds", "p", "p corrected (Holm)",
    "documents", "seeds",
)  # fmt: skip
BLANK = "–"


def differences_section(study: Study, pairs: Sequence[Pair]) -> str:
    """Tables of all pairs by length or, of many encodings, matrices for three lengths."""
    if not pairs:
        return ""
    title = "<h2>Differences</h2>"
    reasons = list(dict.fromkeys(pair.reason for pair in pairs if pair.reason))
    if all(pair.difference is None for pair in pairs):
        return f"<section>{title}{items(['Not available.', *reasons])}</section>"
    if len(study.encodings) <= MOST_IN_TABLES:
        shown = _tables(study, pairs)
    else:
        shown = "".join(_matrix(study, pairs, length) for length in _main_lengths(study))
    lines = [*_how_to_read(study), *_what_follows(pairs), *reasons]
    return f'<section class="texts">{title}{items(lines)}{shown}</section>'


def shown_interval(interval: Interval | None, digits: int = 3) -> str:
    """``[-0.031, -0.012]``, or a dash."""
    return f"[{interval.low:z.{digits}f}, {interval.high:z.{digits}f}]" if interval else BLANK


def _how_to_read(study: Study) -> list[str]:
    lines = [
        "Suffix loss of an encoding minus that of the one it stands against, on the same tokens of "
        "the same documents, in nats per token: negative where the encoding is better. Intervals "
        "are of 95 %. With several seeds, both are compared seed by seed, over the seeds that both "
        "have.",
        "Over documents (paired bootstrap-t, seeds averaged): whether these very models differ on "
        "text of this kind. Over seeds (paired t): whether the encodings differ when models are "
        "trained again, on these documents.",
        "p: paired t-test over seeds. Corrected: for all pairs of one length together, by Holm's "
        "method; lengths are families of their own. Intervals are not corrected for how many pairs "
        "there are. Every pair stands in pairs.csv.",
    ]
    if len(study.encodings) > MOST_IN_TABLES:
        lines.append(
            "Rows against columns. Bold: the interval over documents excludes 0, as one pair in "
            "twenty does by chance: it is not corrected for how many pairs there are. Starred: the "
            f"p, corrected for the pairs of this length, is below {SURE}."
        )
    return lines


def _what_follows(pairs: Sequence[Pair]) -> list[str]:
    """What may be concluded from as many seeds as there are."""
    tested = [pair for pair in pairs if pair.p_holm is not None]
    lines = _sure_pairs(tested) if tested else []
    if any(pair.seeds == 0 for pair in pairs):
        lines.append("Encodings without a seed in common are not compared.")
    compared = [pair.seeds for pair in pairs if pair.seeds > 0]
    fewest = min(compared, default=0)
    if fewest == 1:
        whose = "" if max(compared) == 1 else " in common"
        lines.append(
            f"One seed{whose}: no p. A difference is one between two trained models; whether "
            "another seed would turn it round is not known, however narrow the interval over "
            "documents."
        )
    elif 1 < fewest < 5:
        lines.append(
            f"{fewest} seeds are few: intervals over seeds are wide and rest on normally "
            "distributed differences, which so few cannot show. Differences that only more seeds "
            "would settle stay open."
        )
    return lines


def _sure_pairs(tested: Sequence[Pair]) -> list[str]:
    """How many pairs differ, length by length: each of these is a family of tests."""
    counts = []
    for length in dict.fromkeys(pair.length for pair in tested):
        own = [pair for pair in tested if pair.length == length]
        sure = sum(pair.p_holm is not None and pair.p_holm < SURE for pair in own)
        counts.append(f"{sure} of {counted(len(own), 'pair')} at {length}")
    line = f"Pairs that differ over seeds with a corrected p below {SURE}: {', '.join(counts)}."
    if len(counts) > 1:
        line += (
            f" Each length is a family of its own: one of them has a false one with a chance of at "
            f"most {SURE}, all {len(counts)} together with a larger one."
        )
    return [
        line,
        "Of the other pairs it cannot be said that they differ, which is not to say that they are "
        "equal.",
    ]


def _main_lengths(study: Study) -> list[int]:
    """The train length, the next one tested beyond it, and the longest; of those measured."""
    lengths, own = study.lengths("suffix"), study.train_length
    beyond = [length for length in lengths if length > own]
    inside = [length for length in lengths if length <= own]
    return list(dict.fromkeys([*inside[-1:], *beyond[:1], *lengths[-1:]]))


def _tables(study: Study, pairs: Sequence[Pair]) -> str:
    """One table for each length, the main ones open."""
    html, main = "", _main_lengths(study)
    for length in dict.fromkeys(pair.length for pair in pairs):
        rows = "".join(_row(study, pair) for pair in pairs if pair.length == length)
        body = f'<tbody class="encoding">{rows}</tbody>'
        is_open = " open" if length in main else ""
        trained = ", the train length" if length == study.train_length else ""
        html += (
            f"<details{is_open}><summary>At {length} tokens{trained}</summary>"
            f"{table(heads(COLUMNS), body, sort='rows', means=over_seeds(study))}</details>"
        )
    return html


def _row(study: Study, pair: Pair) -> str:
    cells = (
        "not available" if pair.difference is None else f"{pair.difference:z.3f}",
        shown_interval(pair.over_documents),
        shown_interval(pair.over_seeds),
        _p(pair.p),
        _p(pair.p_holm),
        str(pair.documents),
        str(pair.seeds),
    )
    numbers = "".join(f"<td>{cell}</td>" for cell in cells)
    title = encoding(study, pair.a, against=list(study.encodings).index(pair.b))
    return f"<tr>{title}<td>{escape(pair.b)}</td>{numbers}</tr>"


def _matrix(study: Study, pairs: Sequence[Pair], length: int) -> str:
    """Difference of each row's encoding against each column's, both by rank."""
    ranked, cells = ranking(study, length), {}
    places = {label: f' data-against="{n}"' for n, label in enumerate(study.encodings)}
    for pair in pairs:
        if pair.length == length:
            cells[pair.a, pair.b] = _cell(pair, 1)
            cells[pair.b, pair.a] = _cell(pair, -1)
    rows = ""
    for label in ranked:
        numbers = "".join(
            f"<td{places[other]}>{cells.get((label, other), '')}</td>" for other in ranked
        )
        rows += f"<tr>{encoding(study, label)}{numbers}</tr>"
    columns = "".join(f"<th{places[label]}>{escape(label)}</th>" for label in ranked)
    body = f'<tbody class="encoding">{rows}</tbody>'
    numbers = table(heads(["encoding"]) + columns, body, means=over_seeds(study))
    return f"<h3>At {length} tokens</h3>{numbers}"


def _cell(pair: Pair, sign: int) -> str:
    if pair.difference is None:
        return BLANK
    text = f"{sign * pair.difference:z.3f}"
    if pair.p_holm is not None and pair.p_holm < SURE:
        text += "*"
    if pair.over_documents is not None and pair.over_documents.excludes_zero:
        text = f"<b>{text}</b>"
    return text


def _p(value: float | None) -> str:
    if value is None:
        return BLANK
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"
