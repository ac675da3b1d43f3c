"""Loss spikes on the page: how many, and where."""

import json
from pathlib import Path

from pipeline.report.appendix import cost_table
from pipeline.report.collect import collect
from tests.report.synthetic import write_run


def test_spikes_of_all_seeds_are_counted_with_their_first_steps(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, "rope", seed) for seed in (0, 1)]
    folders += [write_run(tmp_path, "none", seed) for seed in (0, 1)]
    for folder, steps in zip(folders, ((120, 7), (30, 290), (), ()), strict=True):
        with (folder / "metrics.jsonl").open("a") as file:
            for step in steps:
                row = {"kind": "spike", "step": step, "loss": 50.0, "mean": 3.0, "deviation": 0.5}
                file.write(json.dumps(row) + "\n")
    table = cost_table(collect(folders))
    assert "<th>loss spikes</th>" in table and "no step is skipped" in table
    assert "<td>4 (step 7, 30, 120 ...)</td>" in table and "<td>0</td>" in table
