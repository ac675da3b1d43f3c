"""The rest of the page: cost, other protocols, how everything was measured and where it is from."""

from collections.abc import Sequence
from html import escape

import yaml

from pipeline.report.collect import Study
from pipeline.report.drawing import short_number
from pipeline.report.fragments import (
    cell,
    encoding,
    heads,
    items,
    length_cells,
    length_heads,
    listed,
    over_seeds,
    table,
    tokens_of,
)
from pipeline.report.lineage import lineage_line
from pipeline.report.reading import Run
from pipeline.report.table import PROTOCOLS, interval, shown

# the same as SafeDumper, and several times as fast where PyYAML has it
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
COST_COLUMNS = (
    "parameters", "of which position", "attention path",
    "tokens per second in training", "peak memory of a rank", "time to train",
    "time to evaluate", "last training loss", "loss spikes",
)  # fmt: skip


def cost_table(study: Study) -> str:
    """Parameters, speed, memory and time beside the loss that they bought; means over seeds, of
    memory the largest."""
    lengths, rows = study.lengths("suffix"), ""
    beside = [*dict.fromkeys([*(n for n in lengths if n == study.train_length), lengths[-1]])]
    for label, runs in study.encodings.items():
        first = runs[0].summary
        memory = max(run.summary["peak_memory_bytes"] for run in runs)
        speed, seconds = _mean(runs, "tokens_per_second"), _mean(runs, "train_seconds")
        losses = [study.cell(label, "suffix", length) for length in beside]
        cells = (
            *(cell(shown(loss, "bare loss")) for loss in losses),
            cell(f"{first['parameters']:,}"),
            cell(f"{first['position_parameters']:,}"),
            cell(escape(listed(sorted({run.summary["attention_path"] for run in runs})))),
            cell(short_number(speed), speed),
            cell(in_bytes(memory), memory),
            cell(_seconds(seconds), seconds),
            cell(_evaluating(runs)),
            cell(f"{_mean(runs, 'final_loss'):.3f}"),
            cell(_spikes(runs)),
        )
        rows += f"<tr>{encoding(study, label)}{''.join(cells)}</tr>"
    body = f'<tbody class="encoding">{rows}</tbody>'
    columns = ["encoding", *(f"suffix loss at {length}" for length in beside), *COST_COLUMNS]
    note = (
        "The attention path is how training computed attention, at its length (docs/attention.md); "
        "all paths compute the same. Speed is of training alone. Memory is the most any rank held "
        "until the end of training, the short evaluations at every length included. Compare runs "
        "of one machine only. A loss spike is a step whose loss lies 7 standard deviations above "
        "the mean of up to 128 before it; no step is skipped."
    )
    if len(study.trained) < len(study.encodings):
        note += (
            " An encoding under an extension has the parameters and the training of the encoding."
        )
    said = f'<div class="notes"><p>{note}</p></div>'
    costs = table(heads(columns), body, sort="rows", means=over_seeds(study))
    return f"<section><h2>Cost</h2>{costs}{said}</section>"


def other_protocols(study: Study) -> str:
    """Sliding and non-overlapping losses, where measured, always beside the suffix loss."""
    names = [name for name in ("suffix", *PROTOCOLS[2:]) if study.lengths(name)]
    if len(names) == 1:
        return ""
    lengths = sorted({length for name in names for length in study.lengths(name)})
    bodies = ""
    for label in study.encodings:
        rows = ""
        for name in names:
            cells = [study.cell(label, name, length) for length in lengths]
            first = encoding(study, label, len(names)) if name == "suffix" else ""
            row = length_cells(study, label, lengths, cells, "loss")
            rows += f'<tr>{first}<td class="name">{name}</td>{row}</tr>'
        bodies += f'<tbody class="encoding">{rows}</tbody>'
    head = f"<th>encoding</th><th></th>{length_heads(study, lengths)}"
    losses = table(head, bodies, sort="groups", means=over_seeds(study))
    return f"<section><h2>Other protocols</h2>{losses}</section>"


def protocol_lines(study: Study) -> list[str]:
    """How every number was made, a sentence or two for each kind."""
    rows = [row for run in study.runs for row in run.rows]
    suffix = next(row for row in rows if row["protocol"] == "suffix")
    lines = [
        f"Suffix loss: the last {suffix['suffix_tokens']} target tokens of each of "
        f"{suffix['documents']} documents of the {suffix['split']} split. The model is shown the "
        "stated number of tokens before the end of the last target; the targets never change.",
        f"Window control: the same targets, scored by the same model in windows of "
        f"{study.train_length} tokens. It is what an encoding must beat to have used more context.",
        "Perplexity: exp of the loss. Bits per byte, in the CSV: nats divided by ln 2 and by the "
        "UTF-8 bytes of the scored tokens.",
        f"Interval: {interval(study)}.",
    ]
    sliding = [row for row in rows if row["protocol"] == "sliding"]
    if sliding:
        strides = sorted({(row["length"], row["stride"]) for row in sliding})
        lines.append(
            f"Sliding: windows of the stated length over {sliding[0]['documents']} documents, each "
            "token scored once, total nats over total tokens; stride "
            f"{listed([f'{stride} at {length}' for length, stride in strides])}. Non-overlapping: "
            "pieces of the stated length of the same text; early tokens of a piece have little "
            "context, so it never stands alone."
        )
    if study.lengths("per-position"):
        lines.append("Per position: means over whole pieces of the longest defined length.")
    return lines


def protocol(study: Study) -> str:
    """How every number was made, with the fields that make it repeatable."""
    rows = [row for run in study.runs for row in run.rows]
    texts: dict[str, list[str]] = {}
    for name in (*PROTOCOLS, "per-position"):
        for digest in {str(row["text_sha256"]) for row in rows if row["protocol"] == name}:
            texts.setdefault(digest, []).append(name)
    hashes = "".join(
        f"<p>SHA-256 of the text scored by {listed(names)}: <code>{escape(digest)}</code></p>"
        for digest, names in texts.items()
    )
    lines = items(protocol_lines(study))
    return f'<section><h2>Protocol</h2>{lines}<div class="notes">{hashes}</div></section>'


def provenance(study: Study) -> str:
    """Where each number comes from: run folders, configurations, commit and versions."""
    rows = "".join(
        _run_row(study, label, run) for label, runs in study.trained.items() for run in runs
    )
    known = ("run", "seed", "tokens", "commit", "configuration", "corpus", "tokenizer")
    machines = dict.fromkeys(_machine(run) for run in study.trained_runs)
    lines = [line for run in study.trained_runs if (line := lineage_line(run))]
    said = "".join(f"<p>{escape(line)}</p>" for line in [*lines, *machines])
    body = f'<tbody class="encoding">{rows}</tbody>'
    found = table(heads(("encoding", *known)), body, sort="rows")
    configurations = "".join(_configuration(run) for run in study.trained_runs)
    return (
        f'<section class="texts"><h2>Provenance</h2>{found}'
        f'<div class="notes">{said}</div>{configurations}</section>'
    )


def _run_row(study: Study, label: str, run: Run) -> str:
    git = run.environment["git"] or {}
    commit = str(git.get("commit") or "unknown")[:12] + (", changed" if git.get("changed") else "")
    hashes = (
        run.config_sha256,
        run.summary["corpus_sha256"],
        run.summary["tokenizer_sha256"],
    )
    cells = [run.name, str(run.config["seed"]), f"{tokens_of(run):,}", commit]
    cells += [digest[:12] for digest in hashes]
    title = encoding(study, label, seed=run.config["seed"])
    return f"<tr>{title}{''.join(cell(escape(text)) for text in cells)}</tr>"


def _machine(run: Run) -> str:
    found = run.environment
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    return (
        f"Python {found['python']}, {', '.join(packages)}; {found['platform']}; {found['cpu']}, "
        f"{found['cores']} cores."
    )


def _configuration(run: Run) -> str:
    text = yaml.dump(run.config, Dumper=DUMPER, sort_keys=False, allow_unicode=True)
    return (
        f"<details><summary>Configuration of {escape(run.name)}</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )


def _spikes(runs: Sequence[Run]) -> str:
    """How many, and at which steps the first of them; of all seeds."""
    steps = [row["step"] for run in runs for row in run.spike_rows]
    if not steps or runs[0].extension:
        return "–" if runs[0].extension else "0"
    first = listed([str(step) for step in sorted(steps)[:3]])
    return f"{len(steps)} (step {first}{' ...' if len(steps) > 3 else ''})"


def _evaluating(runs: Sequence[Run]) -> str:
    """The time of the runs whose evaluation went through at once; of extensions it is not known."""
    timed = [run for run in runs if run.summary["evaluate_seconds"] is not None]
    return _seconds(_mean(timed, "evaluate_seconds")) if timed and not runs[0].extension else "–"


def _mean(runs: Sequence[Run], key: str) -> float:
    return sum(float(run.summary[key]) for run in runs) / len(runs)


def in_bytes(value: float) -> str:
    """1.5e9 -> ``1.40 GiB``."""
    return f"{value / 2**20:,.0f} MiB" if value < 2**30 else f"{value / 2**30:.2f} GiB"


def _seconds(value: float) -> str:
    if value < 100:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"
