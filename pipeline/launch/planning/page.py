"""A plan as tables for a terminal."""

from collections.abc import Sequence
from typing import Any

from pipeline.model.accounting import PARTS

_NO_TIME = (
    "No time: nothing says how fast a rank is. Name a rate, --flops FLOP/S of one rank, or measure "
    "one: `python -m pipeline bench --measure step`, then --bench FILE."
)
_ENCODING = (
    "encoding: MFLOP/token that the encoding and its attention path multiply beyond the model. run "
    "FLOP and the hours of --flops have them; MFU of a run, and the hours of --bench, do not."
)
_AT_MOST = (
    "<=: at most. What is left out there depends on values that only a run has: compare these by "
    "`python -m pipeline bench`, not by the hours of --flops."
)
_BUCKET = (
    "Note: on a GPU DeepSpeed reserves a bucket of 5e8 numbers for gradients (1.9 GiB in fp32) "
    "however small the model; here it is {share:.0%} of the peak."
)


def page(plan: dict[str, Any]) -> str:
    """The text of what `planning.plan.plan` returns."""
    lines = [*_runs(plan["runs"]), ""]
    lines += [f"Below: {plan['shown']}" + _why(plan), ""]
    shown, more = next(r for r in plan["runs"] if r["name"] == plan["shown"]), plan["details"]
    blocks = (_parts(shown), _caches(shown), _switches(more), _stages(more), _sharings(more))
    for block in blocks:
        lines += [*block, ""]
    return "\n".join([*lines, *_notes(plan, shown, more)])


def _why(plan: dict[str, Any]) -> str:
    if len(plan["runs"]) == 1:
        return ""
    return ", which needs the most memory; name another with position=NAME"


def _runs(runs: Sequence[dict[str, Any]]) -> list[str]:
    heads = ("run", "parameters", "of encoding", "MFLOP/token", "of attention",
             "encoding", "path", "GiB/rank", "cache MiB", "run FLOP", "hours")  # fmt: skip
    rows = [
        (
            run["name"],
            f"{run['parameters']['all']:,}",
            f"{run['parameters']['position']:,}",
            f"{run['flops_per_token'] / 1e6:,.1f}",
            f"{run['attention_flops_per_token'] / run['flops_per_token']:.0%}",
            "<= " * run["encoding_flops_at_most"] + f"{run['encoding_flops_per_token'] / 1e6:,.1f}",
            run["attention_path"],
            _gib(run["rank"]["peak"]),
            _mib(_whole(run["cache"][-1], run["precision"])),
            f"{run['run_flops']:.2e}",
            "-" if run["hours"] is None else f"{run['hours']:,.2f}",
        )
        for run in runs
    ]
    return ["Runs that differ in more than their seed", *aligned(heads, rows, left=(0, 6))]


def _parts(run: dict[str, Any]) -> list[str]:
    rows = [(part, f"{run['parameters'][part]:,}") for part in (*PARTS, "all")]
    return ["Parameters by part", *aligned(("part", "parameters"), rows)]


def _caches(run: dict[str, Any]) -> list[str]:
    heads = ("tokens", "fp32 MiB", "of encoding", "bf16 MiB", "of encoding")
    rows = [
        (f"{row['length']:,}", _mib(_whole(row, "fp32")), _mib(row["fp32_added"]),
         _mib(_whole(row, "bf16")), _mib(row["bf16_added"]))
        for row in run["cache"]
    ]  # fmt: skip
    return ["Keys and values of one sequence", *aligned(heads, rows, left=())]


def _switches(more: dict[str, Any]) -> list[str]:
    heads = ("activation_checkpointing", "tiled_mlp", "MiB beyond weights", "kept activations MiB")
    rows = [
        (_yes(row["activation_checkpointing"]), _yes(row["tiled_mlp"]), _mib(row["peak"]),
         _mib(row["activations"]))
        for row in more["switches"]
    ]  # fmt: skip
    title = f"Forward and backward of a rank's {more['sequences']} sequences at once"
    return [title, *aligned(heads, rows, left=(0, 1))]


def _stages(more: dict[str, Any]) -> list[str]:
    kept = ("weights", "masters", "moments", "gradients", "bucket")
    heads = ("ZeRO", *kept, "peak MiB", "gradients sent", "weights sent")
    rows = [
        (str(row["stage"]), *(_mib(row[name]) for name in kept), _mib(row["peak"]),
         _mib(row["sent"]["gradients"]), _mib(row["sent"]["weights"]))
        for row in more["stages"]
    ]  # fmt: skip
    title = f"One of {more['ranks']} ranks by ZeRO stage: kept, highest and sent in a step, MiB"
    return [title, *aligned(heads, rows)]


def _sharings(more: dict[str, Any]) -> list[str]:
    heads: tuple[str, ...] = ("sequence_parallel", "ring", "sequences", "GiB/rank",
                              "all-to-all MiB", "ring MiB")  # fmt: skip
    limit = more["gpu_memory"]
    rows = []
    for row in more["sharings"]:
        cells = [str(row["sequence_parallel"]), str(row["ring"])]
        if row["sequences"] is None:
            cells += ["uneven", "-", "-", "-"]
        else:
            sent = row["sent"]
            cells += [f"{row['sequences']}", _gib(row["peak"]), _mib(sent["all_to_all"])]
            cells.append(_mib(sent["ring"]))
        rows.append(cells + ([f"{row['longest']:,}"] if limit is not None else []))
    if limit is not None:
        heads += (f"longest in {limit:g} GiB",)
    return ["By ranks that share a sequence; bytes sent in a step", *aligned(heads, rows, left=())]


def _notes(plan: dict[str, Any], shown: dict[str, Any], more: dict[str, Any]) -> list[str]:
    notes = [_ENCODING]
    if any(run["encoding_flops_at_most"] for run in plan["runs"]):
        notes.append(_AT_MOST)
    if shown["hours"] is None:
        notes.append(_NO_TIME)
    if more["device"] == "cuda":
        size = 2 if shown["precision"] == "bf16" and shown["zero_stage"] == 2 else 4
        notes.append(_BUCKET.format(share=min(1.0, 5e8 * size / shown["rank"]["peak"])))
    notes.append(
        f"Rank 0 holds {_mib(12 * shown['parameters']['all'])} MiB of main memory more while it "
        "writes a checkpoint: not in the peaks above."
    )
    if more["gpu_memory"] is not None:
        notes.append("longest: tokens of one sequence at a time, no reserve for fragmentation.")
    return [*notes, "What each figure means and how it was checked: docs/planner.md"]


def _whole(row: dict[str, int], precision: str) -> int:
    return row[precision] + row[f"{precision}_added"]


def _yes(value: bool) -> str:
    return "on" if value else "off"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f}"


def _gib(count: int) -> str:
    return f"{count / 2**30:,.2f}"


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> list[str]:
    """Head, line and rows in columns; those in `left` start at the left."""
    every = [heads, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
