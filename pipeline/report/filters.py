"""The panel with which a page shows some encodings, families or seeds only, by its script."""

from collections.abc import Mapping
from html import escape

from pipeline.report.capability import family
from pipeline.report.collect import Study
from pipeline.report.fragments import dot

NO_SCRIPT = (
    '<noscript><p class="lead">This page runs no script here: everything is shown, and tables '
    "cannot be sorted nor anything filtered.</p></noscript>"
)


def filter_panel(study: Study, numbers: Mapping[str, int]) -> str:
    """Check boxes for what there is more than one of; ``numbers`` are the places of all labels.

    The script of the page makes it visible, for without that it could do nothing.
    """
    families = {label: family(runs[0]) for label, runs in study.encodings.items()}
    for label in numbers.keys() - families.keys():
        # an extension that was probed alone is of its encoding's family
        trained = (known for known in study.trained if label.startswith(f"{known} + "))
        families[label] = families[max(trained, key=len)]
    encodings = "".join(
        _box("encoding", number, dot(number) + escape(label), f' data-family="{families[label]}"')
        for label, number in numbers.items()
    )
    kinds = "".join(_box("family", kind, escape(kind)) for kind in dict.fromkeys(families.values()))
    seeds = sorted({run.config["seed"] for run in study.runs})
    boxes = _set("Encodings", "encoding", encodings, len(numbers))
    boxes += _set("Families", "family", kinds, len(set(families.values())))
    boxes += _set("Seeds", "seed", "".join(_box("seed", n, str(n)) for n in seeds), len(seeds))
    return (
        f'{NO_SCRIPT}<details id="filter" hidden><summary>Filter: <span id="shown" role="status">'
        f'everything is shown</span></summary><div class="choices">{boxes}</div></details>'
    )


def _set(title: str, name: str, boxes: str, count: int) -> str:
    """One group of boxes; of a single thing there is nothing to choose."""
    buttons = "".join(
        f'<button type="button" data-set="{name}" data-to="{to}">{to}</button>'
        for to in ("all", "none")
    )
    hidden = " hidden" if count < 2 else ""
    return f"<fieldset{hidden}><legend>{title} {buttons}</legend>{boxes}</fieldset>"


def _box(name: str, value: object, text: str, more: str = "") -> str:
    shown = escape(str(value))
    return (
        f'<label><input type="checkbox" name="{name}" value="{shown}"{more} checked>{text}</label>'
    )
