"""A report of many runs is there before its reader looks away."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.bench.timing import paired_ratio
from tests.distributed.ranks import ROOT
from tests.report.synthetic import write_kept

ENCODINGS, SEEDS = 25, 4
LIBRARIES = "import matplotlib.figure, scipy.special"
LOADED = 0.7  # seconds for that on a quiet core of a cloud machine; desktops are faster


def seconds(*arguments: str) -> float:
    """Of a Python of its own, with its start."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


@pytest.mark.slow
def test_a_hundred_runs_are_reported_in_five_seconds(tmp_path: Path) -> None:
    """With the program's own start, the nats behind each run, its pictures and its page; five
    seconds where its libraries load in LOADED, and as much more as a busy machine needs for them.
    """
    for number in range(ENCODINGS):
        for seed in range(SEEDS):
            write_kept(tmp_path / "runs", f"encoding{number}", seed)
    page = tmp_path / "page"
    command = "-m", "pipeline", "report", str(tmp_path / "runs"), "--out", str(page)
    took: list[float] = []
    loaded: list[float] = []
    for _ in range(5):
        before = seconds("-c", LIBRARIES)
        took.append(seconds(*command))
        loaded.append((before + seconds("-c", LIBRARIES)) / 2)
    assert paired_ratio(took, loaded) * LOADED < 5.0, (took, loaded)
    html = (page / "index.html").read_text()
    assert all(f"encoding{number}<" in html for number in range(ENCODINGS))
