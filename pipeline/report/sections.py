"""The parts of the page as HTML fragments; every word that comes from a run folder is escaped."""

from collections.abc import Sequence
from html import escape

import yaml

from pipeline.report.collect import Cell, Run, Study
from pipeline.report.curves import look, short_number
from pipeline.report.table import PROTOCOLS, beyond, interval, notes, shown

SUFFIX_CAPTION = (
    "Loss of the same last tokens of the same documents while only the context before them grows. "
    "Bands are the intervals of the table. Dashed: the same model when it sees its last "
    "train-length tokens only. A solid line below its dashed line has used the longer context; one "
    "above it would have done better to ignore it."
)
POSITION_CAPTION = (
    "Mean loss of the token at each position, over documents at least that long. A line that turns up "
    "behind the train length shows where the encoding stops to hold."
)
TRAINING_CAPTION = (
    "Every seed is a line. The evaluations during training use few documents and serve to compare the "
    "course, not the result."
)


def title(study: Study) -> str:
    """What was compared, in one line."""
    names = list(study.encodings)
    longest = study.lengths("suffix")[-1]
    if len(names) == 1:
        return f"{names[0]}: trained at {study.train_length} tokens, tested to {longest}"
    listed = ", ".join(names[:-1]) + f" and {names[-1]}"
    return f"{listed}: trained at {study.train_length} tokens, tested to {longest}"


def lead(study: Study) -> str:
    """How many runs, how large, how long trained, and whether anything else differed."""
    runs = study.runs
    parameters = _range([run.summary["parameters"] for run in runs])
    tokens = _range([_tokens(run) for run in runs])
    seeds = _range([len(found) for found in study.encodings.values()])
    text = (
        f"{_count(len(study.encodings), 'position encoding')}, {seeds} "
        f"seed{'' if seeds == '1' else 's'} each, {parameters} parameters, {tokens} training tokens. "
    )
    if study.varied:
        listed = "; ".join(f"{key} = {_listed(values)}" for key, values in study.varied.items())
        text += f"Besides the encoding, these settings differ between runs: {listed}."
    elif len(runs) > 1:
        same = "the seed" if len(study.encodings) == 1 else "the position encoding"
        same += " and the seed" if len(runs) > len(study.encodings) > 1 else ""
        text += f"Nothing but {same} differs between the runs."
    return f'<p class="lead">{escape(text)}</p>'


def main_table(study: Study) -> str:
    """Suffix loss, perplexity and window control by encoding and length, with its notes."""
    lengths = study.lengths("suffix")
    head = "".join(_length_head(study, length) for length in lengths)
    bodies = []
    for number, label in enumerate(study.encodings):
        usable = study.usable_length(label)
        rows = [
            f'<tr><th rowspan="3">{_dot(number)}{escape(label)}</th><td class="name">suffix loss</td>'
            f"{_cells(study, label, 'suffix', 'loss')}<td>{usable or '–'}</td></tr>",
            f'<tr class="quiet"><td class="name">perplexity</td>'
            f"{_cells(study, label, 'suffix', 'perplexity')}<td></td></tr>",
            f'<tr class="quiet"><td class="name">window control</td>'
            f"{_cells(study, label, 'window control', 'bare loss')}<td></td></tr>",
        ]
        bodies.append(f'<tbody class="encoding">{"".join(rows)}</tbody>')
    under = "".join(f"<p>{escape(line)}</p>" for line in notes(study))
    return (
        '<section><div class="scroll"><table><thead><tr><th>encoding</th><th></th>'
        f"{head}<th>usable to</th></tr></thead>{''.join(bodies)}</table></div>"
        f'<div class="notes">{under}<p>Usable to: the longest length whose suffix loss is within 2 % of '
        "the best at or below it.</p></div></section>"
    )


def conclusions(study: Study) -> str:
    """What the numbers of this study can carry and what they cannot."""
    runs = study.runs
    fewest = min(len(found) for found in study.encodings.values())
    cells = [study.cell(label, "suffix", study.train_length) for label in study.encodings]
    documents = min((cell.documents for cell in cells if cell), default=0)
    ratio = min(_tokens(run) / run.summary["parameters"] for run in runs)
    may = [
        "Whether an encoding, in this model and after this training, gets better, stays level or fails "
        "when the context grows past the train length.",
        "Whether it used the longer context: only where its suffix loss lies below its window control "
        "by more than the interval.",
        "What it costs here, in tokens per second, memory and parameters.",
    ]
    may_not = []
    if fewest < 3:
        may_not.append(
            f"A ranking of close encodings: with {_count(fewest, 'seed')} per encoding, differences of "
            "the size that another seed would make cannot be told from the encoding's doing."
        )
    if ratio < 20:
        may_not.append(
            f"Anything about well-trained models: at {ratio:.2g} training tokens per parameter "
            "(about 20 is usual for a fully trained one) these are undertrained, and orders can change."
        )
    may_not.append(
        f"Anything about models of another size than {_range([r.summary['parameters'] for r in runs])} "
        f"parameters, other text, or lengths beyond {study.lengths('suffix')[-1]}."
    )
    may_not.append(
        f"More precision than {_count(documents, 'document')} give. The same documents serve every "
        "encoding, so their intervals move together: paired differences are more certain than bands."
    )
    return (
        '<section class="two"><div><h3>What these numbers can tell</h3><ul>'
        + "".join(f"<li>{escape(line)}</li>" for line in may)
        + "</ul></div><div><h3>What they cannot</h3><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in may_not)
        + "</ul></div></section>"
    )


def cost_table(study: Study) -> str:
    """Parameters, speed, memory and time of each encoding; means over seeds, memory the largest."""
    head = (
        "encoding", "parameters", "of which position", "tokens per second in training",
        "peak memory of a rank", "time to train", "time to evaluate", "last training loss",
    )  # fmt: skip
    lines = []
    for number, (label, runs) in enumerate(study.encodings.items()):
        cells = (
            f"{runs[0].summary['parameters']:,}",
            f"{runs[0].summary['position_parameters']:,}",
            short_number(_mean(runs, "tokens_per_second")),
            _bytes(max(run.summary["peak_memory_bytes"] for run in runs)),
            _seconds(_mean(runs, "train_seconds")),
            _seconds(_mean(runs, "evaluate_seconds")),
            f"{_mean(runs, 'final_loss'):.3f}",
        )
        tail = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><th>{_dot(number)}{escape(label)}</th>{tail}</tr>")
    titles = "".join(f"<th>{name}</th>" for name in head)
    return (
        '<section><h2>Cost</h2><div class="scroll"><table><thead><tr>'
        f'{titles}</tr></thead><tbody class="encoding">{"".join(lines)}</tbody></table></div></section>'
    )


def other_protocols(study: Study) -> str:
    """Sliding and non-overlapping losses, where measured, always beside the suffix loss."""
    extra = [name for name in PROTOCOLS[2:] if study.lengths(name)]
    if not extra:
        return ""
    lengths = sorted({length for name in ("suffix", *extra) for length in study.lengths(name)})
    bodies = []
    for number, label in enumerate(study.encodings):
        rows = [
            (f'<th rowspan="{len(extra) + 1}">{_dot(number)}{escape(label)}</th>' if not row else "")
            + f'<td class="name">{name}</td>{_cells(study, label, name, "loss", lengths)}'
            for row, name in enumerate(("suffix", *extra))
        ]
        bodies.append(
            f'<tbody class="encoding">{"".join(f"<tr>{row}</tr>" for row in rows)}</tbody>'
        )
    head = "".join(_length_head(study, length) for length in lengths)
    return (
        '<section><h2>Other protocols</h2><div class="scroll"><table><thead><tr><th>encoding</th>'
        f"<th></th>{head}</tr></thead>{''.join(bodies)}</table></div></section>"
    )


def protocol(study: Study) -> str:
    """How every number was made, with the fields that make it repeatable."""
    rows = [row for run in study.runs for row in run.rows]
    suffix = next(row for row in rows if row["protocol"] == "suffix")
    strides = sorted({row["stride"] for row in rows if row.get("stride") and row["protocol"] == "sliding"})
    lines = [
        f"Suffix loss: the last {suffix['suffix_tokens']} target tokens of each of "
        f"{suffix['documents']} documents of the {suffix['split']} split, scored with left context so "
        "that context and targets together have the stated length. The targets never change.",
        f"Window control: the same targets, each seen with at most the {study.train_length} tokens "
        "before it. It is what an encoding must beat to have used a longer context.",
        "Perplexity: exp of the loss. Bits per byte: nats divided by ln 2 and by the UTF-8 bytes of the "
        "scored tokens, in the CSV.",
        f"Interval: {interval(study)}.",
    ]
    if strides:
        lines.append(
            f"Sliding: windows of the stated length, stride {_listed(strides)}; every token is scored "
            "once, total nats over total tokens. Non-overlapping: pieces of the stated length of the "
            "same text; early tokens of a piece have little context, so it is never shown alone."
        )
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    digest = escape(str(suffix["text_sha256"]))
    return (
        f"<section><h2>Protocol</h2><ul>{listed}<li>Scored text, SHA-256: <code>{digest}</code></li>"
        "</ul></section>"
    )


def provenance(study: Study) -> str:
    """Where each number comes from: run folders, configurations, commit and versions."""
    lines = []
    for run in study.runs:
        git = run.environment.get("git") or {}
        commit = str(git.get("commit") or "unknown")[:12] + (" (changed)" if git.get("changed") else "")
        cells = (run.name, str(run.config["seed"]), short_number(_tokens(run)), commit)
        tail = "".join(f'<td class="name">{escape(cell)}</td>' for cell in cells)
        lines.append(f'<tr>{tail}<td class="name"><code>{run.config_sha256[:12]}</code></td></tr>')
    first = study.runs[0].environment
    packages = ", ".join(
        f"{name} {version}" for name, version in (first.get("packages") or {}).items() if version
    )
    machine = (
        f"Python {first.get('python')}; {packages}; {first.get('platform')}; {first.get('cpu')}, "
        f"{first.get('cores')} cores."
    )
    configs = "".join(
        f"<details><summary>Configuration of {escape(run.name)}</summary>"
        f"<pre>{escape(yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True))}</pre></details>"
        for run in study.runs
    )
    head = "".join(
        f'<th class="name">{name}</th>' for name in ("run", "seed", "tokens", "commit", "configuration")
    )
    return (
        f'<section><h2>Provenance</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f'<tbody class="encoding">{"".join(lines)}</tbody></table></div>'
        f'<p class="notes">{escape(machine)}</p>{configs}</section>'
    )


def _cells(
    study: Study, label: str, protocol: str, value: str, lengths: Sequence[int] | None = None
) -> str:
    """Table cells of one line; neighbours that are not defined become one cell that says so."""
    wanted = study.lengths("suffix") if lengths is None else lengths
    cells: list[tuple[int, Cell | None]] = [(n, study.cell(label, protocol, n)) for n in wanted]
    html, place = "", 0
    while place < len(cells):
        length, cell = cells[place]
        end = place + 1
        if cell is not None and cell.reason:
            while end < len(cells) and (following := cells[end][1]) and following.reason:
                end += 1
            text = escape(beyond(study, label) or cell.reason)
            html += f'<td class="undefined" colspan="{end - place}">{text}</td>'
        else:
            mark = ' class="trained"' if length == study.train_length else ""
            html += f"<td{mark}>{escape(shown(cell, value)).replace('±', '<small>±')}" + (
                "</small></td>" if "±" in shown(cell, value) else "</td>"
            )
        place = end
    return html


def _length_head(study: Study, length: int) -> str:
    mark = ' class="trained" title="train length"' if length == study.train_length else ""
    return f"<th{mark}>{length}</th>"


def _dot(number: int) -> str:
    return f'<span class="dot" style="background:{look(number)[0]}"></span>'


def _tokens(run: Run) -> int:
    return max(int(row["tokens"]) for row in run.rows)


def _mean(runs: Sequence[Run], key: str) -> float:
    return sum(float(run.summary[key]) for run in runs) / len(runs)


def _range(values: Sequence[float]) -> str:
    low, high = short_number(min(values)), short_number(max(values))
    return low if low == high else f"{low} to {high}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _bytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MiB" if value < 2**30 else f"{value / 2**30:.2f} GiB"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"
