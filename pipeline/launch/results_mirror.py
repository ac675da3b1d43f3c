"""What W&B gets once an evaluation is whole, beside its rows: cost and quality as figures of the
run, a table of all rows, means of needles over depths, and needle heatmaps."""

import sys
from collections.abc import Mapping
from typing import Any

from pipeline.evaluate.tasks import depth_means
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import read_rows
from pipeline.record.wandb_mirror import WandbMirror

COSTS = (
    "parameters", "position_parameters", "tokens_per_second", "peak_memory_bytes", "train_seconds",
)  # fmt: skip
COLUMNS = (
    "protocol", "task", "depth", "length", "loss", "perplexity", "bits_per_byte", "standard_error",
    "exact_match", "rank", "scored_tokens", "documents", "examples", "stride", "reason",
)  # fmt: skip


def mirror_results(mirror: WandbMirror, folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Send what belongs to a finished run, of which `summary` is what summary.json says."""
    rows = read_rows(folder.evaluation)
    figures = {f"cost/{key}": summary[key] for key in COSTS}
    for row in rows:
        if row["protocol"] == "suffix" and row["defined"]:
            figures[f"quality/suffix_loss_L{row['length']}"] = row["loss"]
    mirror.summary(figures)
    mirror.table("eval/rows", COLUMNS, [[row.get(column) for column in COLUMNS] for row in rows])
    mirror_tasks(mirror, folder)


def mirror_tasks(mirror: WandbMirror, folder: RunFolder) -> None:
    """Send, of each needle task, its curve over `eval/length` and its heatmap, drawn beside the
    other files of W&B. A picture that cannot be drawn is said on stderr: the run goes on."""
    if not mirror.sends:
        return
    rows = [row for row in read_rows(folder.evaluation) if row["protocol"] == "task"]
    for row in depth_means(rows):
        mirror.log(row)
    needles = [row for row in rows if row["depth"] is not None]
    for task in dict.fromkeys(row["task"] for row in needles):
        path = folder.path / "wandb" / f"needle-{task}.png"
        try:
            # here, because the ranks that draw nothing need no matplotlib
            from pipeline.report.heatmap import needle_figure
            from pipeline.report.output import save_png
            from pipeline.report.picture import Part

            own = [row for row in needles if row["task"] == task]
            path.parent.mkdir(exist_ok=True)
            name, length = folder.path.name, rows[0]["train_length"]
            save_png(needle_figure({name: own}, length, {name: Part(0, "run")}), path)
        except Exception as error:
            print(f"note: {path} could not be drawn ({error})", file=sys.stderr, flush=True)
        else:
            mirror.image(f"eval/{task}_heatmap", path)
