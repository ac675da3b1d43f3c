"""The section "What each encoding is and can": declared facts, beside what these runs had of it."""

from html import escape

from pipeline.positions.declared import declared
from pipeline.positions.facts import Facts
from pipeline.report.collect import Study
from pipeline.report.fragments import cell, encoding, heads, listed, table
from pipeline.report.reading import Run

OTHER = "other"
COLUMNS = (
    "encoding", "family", "defined beyond the train length", "longest sequence", "shift invariant",
    "ranks may share heads", "ranks may share tokens (ring)", "attention paths", "path taken here",
    "extra parameters", "of these, here",
)  # fmt: skip
NOTES = (
    "What encodings declare in this version of the code, which tests hold them to, with default "
    "settings; `python -m pipeline positions` prints the same. Family: by what position enters the "
    "model. Defined: whether there is any value, not whether it is any good; the curves show that. "
    "Shift invariant: scores depend on distances alone. Extra parameters: a formula over model and "
    "settings, and the count in these runs. Attention paths: those that can serve it, and the one "
    "that training took."
)


def family(run: Run) -> str:
    """By what position enters the model; "other" for what is no encoding of this version."""
    facts = declared(run.config["position"]["name"])
    return facts.family if facts else OTHER


def capability_section(study: Study) -> str:
    """One row for each encoding as it was trained."""
    rows, unknown = "", []
    for label, runs in study.trained.items():
        facts = declared(runs[0].config["position"]["name"])
        if facts is None:
            unknown.append(label)
        cells = [
            *_declared(facts),
            listed(sorted({run.summary["attention_path"] for run in runs})),
            facts.extra_parameters if facts else "–",
            f"{runs[0].summary['position_parameters']:,}",
        ]
        shown = "".join(cell(escape(text)) for text in cells)
        rows += f"<tr>{encoding(study, label)}{shown}</tr>"
    body = f'<tbody class="encoding">{rows}</tbody>'
    said = NOTES
    if unknown:
        said += f" Not an encoding of this version, so nothing is declared: {listed(unknown)}."
    facts_table = table(heads(COLUMNS), body, sort="rows")
    return (
        f'<section class="texts wrapped"><h2>What each encoding is and can</h2>{facts_table}'
        f'<div class="notes"><p>{escape(said)}</p></div></section>'
    )


def _declared(facts: Facts | None) -> list[str]:
    """Family, range, invariance, how it may be shared by ranks, and by what it is computed."""
    if facts is None:
        return [OTHER, *["–"] * 6]
    return [
        facts.family,
        _beyond(facts.max_length),
        str(facts.max_length).replace("_", " "),
        *(_yes(x) for x in (facts.shift_invariant, facts.head_shardable, facts.ring_shardable)),
        listed(facts.attention_paths),
    ]


def _beyond(longest: str | int) -> str:
    if isinstance(longest, int):
        return f"to {longest} tokens"
    return _yes(longest == "unbounded")


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
