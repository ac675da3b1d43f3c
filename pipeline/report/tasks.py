"""What a study says about tasks with known answers: the section of the page."""

from collections.abc import Mapping
from html import escape

from pipeline.report.collect import Study
from pipeline.report.fragments import (
    counted,
    encoding,
    figure,
    items,
    length_heads,
    over_seeds,
    table,
)
from pipeline.report.heatmap import cell_examples, heatmap_stem
from pipeline.report.task_shares import (
    Share,
    guessing,
    share,
    task_lengths,
    task_rows,
    tasks_of,
    trained_share,
)

# guessing that reaches less than this is not worth a line in a picture
STATED = 0.01
CURVES = (
    "Tasks: exact match as the length grows",
    "Share of examples whose answer is right in every token, as greedy decoding would write it; of "
    "needles over all depths. Lines are means over seeds, small points the seeds. Bands are 95 % "
    "intervals: over seeds (Student's t, cut off at 0 and 1), or over examples (Wilson) of one "
    "seed, and where all seeds agree. Dash-dotted, where it is not near 0: what guessing would "
    "reach. A bar ends the line of an encoding that is not defined further. The train length is "
    "that of all training sequences; which tasks were among them stands in the table.",
)
HEATMAP = (
    "share of exact matches by length and depth",
    "Depth is where the needle lies in the text, from 0 = first to 1 = last; where it really "
    "begins, as a share of the prompt, is in tasks.csv. Dotted: the train length. Hatched: not "
    "defined.",
)
# what a needle task does not test
NEEDLES = {
    "passkey": "The prompt shows one number only: this tests finding, not matching.",
    "multi_key": "At depth 0 the needle asked for is always the first of all, at depth 1 always "
    "the last: there its place alone tells it, so these depths do not test the key.",
}
NOTES = (
    "Share of examples right in every token, mean over seeds, with its 95 % interval: over seeds "
    "(Student's t, cut off at 0 and 1), or over examples (Wilson) of one seed, and where all seeds "
    "agree. All seeds are asked the same examples, so more seeds are no more examples. "
    "task_shares.csv holds these numbers and says over what each interval is; tasks.csv every row "
    "of every seed, with losses and ranks.",
    "Guessing: the better of two guesses, each token of the answer alone, all that answers are "
    "made of alike (the highest digit of a sum, 0 or 1, is easier than that), or, where the rows "
    "say how many answers of the right form the prompt shows, one of these. Not counted: in short "
    "prompts of majority, any one of their letters is right more often than one in four.",
    "The digits of numbers in text (passkey, multi_key, multi_value) are tokens that text hardly "
    "ever has: they are easier to find than in a published passkey test.",
    "Stopping is not tested: the length of the answer is given, and the token after it is neither "
    "trained nor scored, unlike in an exact match that needs an end of the answer.",
    "Share of training: of this training's sequences, by data.mix; runs that it continues had "
    "their own. A task that is not in training is asked of models that were never shown its form.",
)


def tasks_section(study: Study, pictures: Mapping[str, str]) -> str:
    """Curves, table and heatmaps of all tasks; empty if there are none."""
    names = tasks_of(study)
    if not names:
        return ""
    lengths = sorted({length for task in names for length in task_lengths(study, task)})
    bodies = "".join(_table_body(study, task, lengths) for task in names)
    head = f"<th>exact match</th>{length_heads(study, lengths)}"
    shares = table(head, bodies, sort="rows", means=over_seeds(study))
    parts = [
        figure(pictures["tasks"], *CURVES),
        f'<section class="texts">{shares}{items(NOTES)}</section>',
    ]
    for task in names:
        if (stem := heatmap_stem(task)) in pictures:
            caption = " ".join([HEATMAP[1], _cells(study, task), NEEDLES.get(task, "")]).rstrip()
            parts.append(figure(pictures[stem], f"{task}: {HEATMAP[0]}", caption))
    return "\n".join(parts)


def training_words(study: Study, task: str) -> str:
    """The share of training sequences that were of a task, over all runs."""
    found = trained_share(study.trained_runs, task)
    if found is None:
        return "share of training not stated"
    if found[1] == 0.0:
        return "not in training"
    low, high = (f"{100 * part:.3g}" for part in found)
    return f"{low if low == high else f'{low} to {high}'} % of training"


def _cells(study: Study, task: str) -> str:
    rows = [row for run in study.runs for row in task_rows(run, task)]
    return f"In each cell: {cell_examples(rows)}."


def _table_body(study: Study, task: str, lengths: list[int]) -> str:
    guesses = [guessing(study, task, length) for length in lengths]
    said = "".join(
        f"<td><small>guessing {guess:.2f}</small></td>" if stated(guess) else "<td></td>"
        for guess in guesses
    )
    name = f"{escape(task)} <small>{training_words(study, task)}</small>"
    rows = f"<tr data-fixed><th>{name}</th>{said}</tr>"
    for label in study.encodings:
        cells = "".join(
            _cell(share(study, label, task, length), length == study.train_length)
            for length in lengths
        )
        rows += f"<tr>{encoding(study, label)}{cells}</tr>"
    return f'<tbody class="encoding">{rows}</tbody>'


def stated(guess: float | None) -> bool:
    """Whether what guessing reaches is worth a word: STATED or more, but for rounding."""
    return guess is not None and guess > STATED * (1 - 1e-9)


def _cell(found: Share | None, trained: bool) -> str:
    if found is None:
        return "<td>–</td>"
    if found.reason:
        return f'<td class="undefined" title="{escape(found.reason)}">not defined</td>'
    mark = ' class="trained"' if trained else ""
    of = counted(len(found.by_seed), "seed")
    seeds = ", ".join(f"{seed}: {value:.2f}" for seed, value in found.by_seed.items())
    title = f"over {found.over}; {of}, of {found.examples} examples each: {seeds}"
    interval = f'<small title="{title}"> {found.low:.2f}–{found.high:.2f}</small>'
    return f"<td{mark}>{found.value:.2f}{interval}</td>"
