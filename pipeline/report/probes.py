"""What was seen inside the models: attention by distance and position in their states, in a table.

Probes are optional: runs have them after `python -m pipeline probe`. Numbers are means over the
seeds that were probed, and over heads where a table shows one for a layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Any

from pipeline.errors import DataError
from pipeline.report.collect import Study
from pipeline.report.fragments import figure, heads, table, title_of
from pipeline.report.reading import read_probes

Row = Mapping[str, Any]
Probes = dict[str, list[Row]]
# what must be equal for two rows to stand in one table
SAME = (
    "text_sha256", "corpus_sha256", "tokenizer_sha256", "split", "documents", "suffix_tokens",
    "queries", "precision", "code_sha256",
)  # fmt: skip
COLUMNS = (
    "encoding", "length", "layer", "mean distance", "of its heads", "beyond train length",
    "resolution", "R² position", "R² log position", "R² control",
)  # fmt: skip
NOTES = (
    "Mean distance: tokens between a query and the keys it attends to, weighted by attention; mean "
    "over heads, then that of the nearest and of the farthest head. Beyond train length: the share "
    "of attention to tokens at least the train length away. Training never had tokens so far "
    "apart, but may have had positions so far apart: under the position ids pose and randomized, "
    "or under an extension or at a longer length that the weights were trained with before. The "
    "queries are of the tokens that the suffix loss scores.",
    "Resolution: how clearly attention scores fall with distance (Sun et al. 2022); 0 where they "
    "are flat. Scores are means over few queries, and noise in them raises it: compare it at equal "
    "length only.",
    "R²: how much of a token's position a linear map reads from what the layer reads, on a quarter "
    "of the documents, which it was not fitted on; the map is fitted anew at each length and "
    "layer. The last line of a length is what the output reads. Control: the same "
    "with shuffled positions, the larger of two. Layer 0 of an encoding that leaves the input "
    "alone shows what the text itself tells of its place.",
)
CAPTIONS = {
    "probe-attention": (
        "Attention by distance",
        "Share of attention by the distance between query and key, in bins that double: each "
        "holds the distances from its label to the next. Thick: mean over heads and seeds, at the "
        "longest length that was probed, which a name states where encodings differ in it; thin: "
        "every head. Dashed: at the train length. Right of the dotted line are tokens at least the "
        "train length away.",
    ),
    "probe-decodability": (
        "Position in the states",
        "How much of the position of a token a linear map reads from its state before each block, "
        "and after the last one, on a quarter of the documents, which it was not fitted on; fitted "
        "anew at each length. The longest length is that of each encoding; a name states it where "
        "they differ. Dashed: the same with shuffled positions, which no state can tell.",
    ),
}


@dataclass(frozen=True)
class Layer:
    """One line of the table; None where there is nothing to show or a seed has no number."""

    label: str
    length: int
    layer: int
    distance: float | None
    nearest: float | None
    farthest: float | None
    beyond: float | None
    resolution: float | None
    position: float | None
    log_position: float | None
    control: float | None


def find_probes(study: Study) -> Probes:
    """The rows of all seeds by label: encodings in the order of the study, each also under the
    extensions it was probed with, whether or not it was tested with them.

    Raises DataError for damaged rows and for such as do not belong in one table.
    """
    found: Probes = {}
    for label, runs in study.trained.items():
        for run in runs:
            for path, rows in read_probes(run).items():
                own = path.parent == run.path / "probes"
                name = label if own else f"{label} + {_extension(rows[0])}"
                found.setdefault(name, []).extend(rows)
    check_alike([row for rows in found.values() for row in rows])
    known = [label for label in study.encodings if label in found]
    return {label: found[label] for label in dict.fromkeys([*known, *found])}


def numbers_of(study: Study, probes: Probes) -> dict[str, int]:
    """The place of each label among all colours and markers: that which it has in the study."""
    return {label: n for n, label in enumerate(dict.fromkeys([*study.encodings, *probes]))}


def names_of(probes: Probes) -> dict[str, str]:
    """How pictures name each label: with its longest length where labels differ in that."""
    longest = {label: lengths_of(rows)[-1] for label, rows in probes.items()}
    if len(set(longest.values())) == 1:
        return {label: label for label in probes}
    return {label: f"{label}, longest {length}" for label, length in longest.items()}


def lengths_of(rows: Sequence[Row]) -> list[int]:
    """The probed lengths, ascending."""
    return sorted({row["length"] for row in rows})


def values(rows: Sequence[Row], probe: str, key: str, **where: Any) -> list[Any] | None:
    """`key` of every row of a probe with these fields; None if there is none or one lacks it."""
    chosen = {"probe": probe, **where}
    found = [row[key] for row in rows if chosen.items() <= row.items()]
    return found if found and None not in found else None


def layers_of(probes: Probes) -> list[Layer]:
    """Every line of the table, label by label, length by length."""
    lines = []
    for label, rows in probes.items():
        for length in lengths_of(rows):
            here = [row for row in rows if row["length"] == length]
            layers = sorted({row["layer"] for row in here})
            lines += [_layer(here, label, length, layer) for layer in layers]
    return lines


def probes_text(study: Study, probes: Probes) -> str:
    """The table for a terminal, with its notes."""
    body = [_cells(line) for line in layers_of(probes)]
    rows = [list(COLUMNS), *body]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *_notes(study, probes)]) + "\n"


def probes_section(study: Study, probes: Probes, pictures: Mapping[str, str]) -> str:
    """The table, its notes and the pictures; nothing where no run was probed."""
    if not probes:
        return ""
    places, every = numbers_of(study, probes), layers_of(probes)
    bodies = ""
    for label in probes:
        lines = [line for line in every if line.label == label]
        rows = ""
        for number, line in enumerate(lines):
            first = ""
            if number == 0:
                first = title_of(places[label], label, len(lines))
            cells = "".join(f"<td>{escape(text)}</td>" for text in _cells(line)[1:])
            rows += f"<tr>{first}{cells}</tr>"
        bodies += f'<tbody class="encoding">{rows}</tbody>'
    said = "".join(f"<p>{escape(line)}</p>" for line in _notes(study, probes))
    means = any(len({row["seed"] for row in rows}) > 1 for rows in probes.values())
    numbers = table(heads(COLUMNS), bodies, sort="groups", means=means)
    drawn = (figure(pictures[stem], *CAPTIONS[stem]) for stem in CAPTIONS if stem in pictures)
    return (
        f'<section><h2>Probes</h2>{numbers}<div class="notes">{said}</div>'
        f"</section>{''.join(drawn)}"
    )


def _notes(study: Study, probes: Probes) -> list[str]:
    """What belongs under every rendering of the table."""
    gaps = {
        f"{label} at {row['length']}, layer {row['layer']}: {row['reason']}.": None
        for label, rows in probes.items()
        for row in rows
        if not row["defined"]
    }
    return [_measured(study, probes), *NOTES, *gaps]


def _measured(study: Study, probes: Probes) -> str:
    """On how much the numbers rest, and which encodings were not probed."""
    row = next(row for rows in probes.values() for row in rows)
    seeds = {len({row["seed"] for row in rows}) for rows in probes.values()}
    counts = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    text = (
        f"{row['documents']} documents of the {row['split']} split, {row['queries']} queries of "
        f"each, {counts} seed{'' if seeds == {1} else 's'}."
    )
    missing = [label for label in study.encodings if label not in probes]
    return text + (f" Not probed: {', '.join(missing)}." if missing else "")


def _layer(rows: Sequence[Row], label: str, length: int, layer: int) -> Layer:
    distances = values(rows, "attention", "distance", layer=layer)
    by_head = [
        fmean(found)
        for head in sorted({row["head"] for row in rows if row["probe"] == "attention"})
        if (found := values(rows, "attention", "distance", layer=layer, head=head))
    ]
    controls = [
        _mean(values(rows, "decodability", "control_r2", layer=layer, target=target))
        for target in ("position", "log position")
    ]
    return Layer(
        label=label,
        length=length,
        layer=layer,
        distance=_mean(distances),
        nearest=min(by_head) if distances else None,
        farthest=max(by_head) if distances else None,
        beyond=_mean(values(rows, "attention", "beyond", layer=layer)),
        resolution=_mean(values(rows, "resolution", "resolution", layer=layer)),
        position=_mean(values(rows, "decodability", "r2", layer=layer, target="position")),
        log_position=_mean(values(rows, "decodability", "r2", layer=layer, target="log position")),
        control=None if None in controls else max(c for c in controls if c is not None),
    )


def _mean(found: Sequence[float] | None) -> float | None:
    return None if found is None else fmean(found)


def _cells(line: Layer) -> list[str]:
    spread = "-"
    if line.nearest is not None and line.farthest is not None:
        spread = f"{line.nearest:.1f} to {line.farthest:.1f}"
    return [
        line.label, str(line.length), str(line.layer), _shown(line.distance, ".1f"), spread,
        _shown(line.beyond, ".1%"), _shown(line.resolution, ".2e"), _shown(line.position, ".3f"),
        _shown(line.log_position, ".3f"), _shown(line.control, ".3f"),
    ]  # fmt: skip


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def check_alike(every: Sequence[Row]) -> None:
    """Refuse rows that were not measured alike, by the fields of SAME.

    Raises DataError naming the field, the values and the runs.
    """
    for field in SAME:
        seen: dict[Any, Row] = {}
        for row in every:
            # rows that were written before suffix_tokens was among their facts have none
            seen.setdefault(row.get(field), row)
        if len(seen) > 1:
            held = ", ".join(f"{str(value)[:12]} in {_of(row)}" for value, row in seen.items())
            raise DataError(
                f"the probes of these runs do not belong in one table: {field} differs ({held}). "
                "Probe them again with the same settings, or delete the folder `probes` of one"
            )


def _of(row: Row) -> str:
    """The run of a row, and the extension if it is of one."""
    run = str(row["run"])
    return run if row["extension"] == "none" else f"{run} + {_extension(row)}"


def _extension(row: Row) -> str:
    """The extension of a row, with its settings."""
    return f"{row['extension']} {row['extension_settings']}".rstrip()
