"""The head of the page: what was compared, the main table, and what it can and cannot tell."""

from html import escape

from pipeline.report.collect import Study
from pipeline.report.fragments import (
    counted,
    encoding,
    items,
    length_cells,
    length_heads,
    listed,
    over_seeds,
    spanned,
    table,
    tokens_of,
)
from pipeline.report.table import LINES, main_cell, notes, varied_lines
from pipeline.report.task_shares import at_chance

# Below this many training tokens per parameter a model is plainly undertrained.
WELL_TRAINED = 20
LONGEST = 160  # letters of names in a title


def title(study: Study) -> str:
    """What was compared, in one line."""
    names = list(study.encodings)
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    if len(joined) > LONGEST:
        joined = f"{len(names)} encodings"
    longest = study.lengths("suffix")[-1]
    return f"{joined}: trained at {study.train_length} tokens, tested to {longest}"


def lead(study: Study) -> str:
    """How many runs, how large, how long trained, and whether anything else differed."""
    runs, extended = study.trained_runs, len(study.encodings) - len(study.trained)
    seeds = spanned([len(found) for found in study.trained.values()])
    tests = f" and {counted(extended, 'test')} of them under an extension" if extended else ""
    text = (
        f"{counted(len(study.trained), 'position encoding')}, {seeds} "
        f"seed{'' if seeds == '1' else 's'} each{tests}, "
        f"{spanned([run.summary['parameters'] for run in runs])} parameters, "
        f"{spanned([tokens_of(run) for run in runs])} training tokens."
    )
    if study.varied:
        text += f" {' '.join(varied_lines(study))}"
    elif len(runs) > 1:
        same = ["the position encoding"] if len(study.trained) > 1 else []
        same += ["the seed"] if len(runs) > len(study.trained) else []
        text += f" Nothing but {' and '.join(same)} differs between the runs."
    return f'<p class="lead">{escape(text)}</p>'


def main_table(study: Study) -> str:
    """Suffix loss, perplexity and window control by encoding and length, with its notes."""
    lengths = study.lengths("suffix")
    bodies = ""
    for label in study.encodings:
        rows = ""
        for line, (name, protocol, value) in enumerate(LINES):
            cells = [main_cell(study, label, protocol, length) for length in lengths]
            first = encoding(study, label, len(LINES)) if line == 0 else ""
            last = (study.usable_length(label) or "–") if line == 0 else ""
            mark = "" if line == 0 else ' class="quiet"'
            rows += (
                f'<tr{mark}>{first}<td class="name">{name}</td>'
                f"{length_cells(study, label, lengths, cells, value)}<td>{last}</td></tr>"
            )
        bodies += f'<tbody class="encoding">{rows}</tbody>'
    head = f"<th>encoding</th><th></th>{length_heads(study, lengths)}<th>usable to</th>"
    under = [
        *notes(study),
        "Usable to: the longest length whose suffix loss is within 2 % of the best one within the "
        "train length, as at every length from the train length up to it.",
    ]
    said = "".join(f"<p>{escape(line)}</p>" for line in under)
    numbers = table(head, bodies, sort="groups", means=over_seeds(study))
    return f'<section>{numbers}<div class="notes">{said}</div></section>'


def conclusions(study: Study) -> str:
    """What the numbers of this study can carry and what they cannot."""
    can = [
        "Whether an encoding, in this model and after this training, gains, stays level or fails "
        "when the context grows past the train length.",
        "Whether it used the longer context: only where its suffix loss lies below its window "
        "control by more than the interval.",
        "What it costs here, in tokens per second, memory and parameters.",
    ]
    return (
        f'<section class="two"><div><h2>What these numbers can tell</h2>{items(can)}</div>'
        f"<div><h2>What they cannot</h2>{items(_cannot(study))}</div></section>"
    )


def _cannot(study: Study) -> list[str]:
    runs = study.runs
    parameters = [run.summary["parameters"] for run in runs]
    fewest = min(len(found) for found in study.encodings.values())
    ratio = min(tokens_of(run) / size for run, size in zip(runs, parameters, strict=True))
    documents = min(
        row["documents"] for run in runs for row in run.rows if row["protocol"] == "suffix"
    )
    found = []
    if study.varied and len(study.trained) > 1:
        found.append(
            "What of a difference is the encoding's doing between runs that differ in other "
            f"settings as well: {listed(list(study.varied))}."
        )
    if fewest < 3:
        even = all(len(seeds) == fewest for seeds in study.encodings.values())
        with_these = f"{counted(fewest, 'seed')} {'each' if even else 'of some'}"
        found.append(
            f"How close encodings rank: with {with_these}, a difference as small as another seed "
            "would make cannot be told from the encoding's doing."
        )
    elif fewest < 5:
        found.append(
            f"Whether small differences between encodings are real: {fewest} seeds are few, and "
            "intervals over them are wide."
        )
    if ratio < WELL_TRAINED:
        found.append(
            f"How well-trained models would do: with {ratio:.2g} training tokens per parameter, "
            f"where about {WELL_TRAINED} are usual, these are undertrained, and the order of "
            "encodings can change with more training."
        )
    found.append(
        f"Anything about models of another size than {spanned(parameters)} parameters, about other "
        f"text, or about lengths beyond {study.lengths('suffix')[-1]}."
    )
    more = f"How other documents would come out: these are {counted(documents, 'document')}."
    if fewest == 1:
        more += (
            " All encodings read the same ones, so their intervals move together: differences on "
            "them are surer than the intervals suggest."
        )
    found += [more, *_of_protocol_and_tasks(study)]
    return found


def _of_protocol_and_tasks(study: Study) -> list[str]:
    """What the protocol leaves out, and which tasks no model has learned."""
    row = next(row for run in study.runs for row in run.rows if row["protocol"] == "suffix")
    found = [
        f"What another protocol would give: the loss is that of the last {row['suffix_tokens']} "
        f"tokens of each document of the {row['split']} split, where context helps in another way "
        "than in the middle of a text, and losses of other protocols must not be set beside it."
    ]
    idle = at_chance(study)
    if idle:
        found.append(
            f"Anything about encodings from {listed(idle)}: there no run is above guessing at any "
            "length, by more than chance makes of so many, so nothing was learned that could be "
            "carried to longer sequences."
        )
    return found
