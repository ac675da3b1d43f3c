"""What W&B gets of tasks once an evaluation is whole: means over depths, and needle heatmaps."""

import sys

from pipeline.evaluate.tasks import depth_means
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import read_rows
from pipeline.record.wandb_mirror import WandbMirror


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
            from pipeline.report.drawing import save_png
            from pipeline.report.heatmap import needle_figure

            own = [row for row in needles if row["task"] == task]
            path.parent.mkdir(exist_ok=True)
            save_png(needle_figure({folder.path.name: own}, rows[0]["train_length"]), path)
        except Exception as error:
            print(f"note: {path} could not be drawn ({error})", file=sys.stderr, flush=True)
        else:
            mirror.image(f"eval/{task}_heatmap", path)
