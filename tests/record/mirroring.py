"""Mirrors the same few rows in a process of its own, so that each test has a fresh W&B client."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.record.fake_wandb import FakeWandb, StoredRun

ROOT = Path(__file__).parents[2]
KEY = "f00dfeed" * 5
SHORT = ("wandb.init_timeout=4", "wandb.finish_timeout=2")
# For a client that must come up on a busy machine before something happens to it.
SHORT_FINISH = ("wandb.finish_timeout=2",)
SCORE = {"loss": 3.25, "perplexity": 25.8, "bits_per_byte": 1.5}
TRAIN = {"learning_rate": 0.001, "gradient_norm": 0.5, "tokens_per_second": 9.5, "seconds": 1.5}
ROWS: list[dict[str, Any]] = [
    *(
        {"kind": "train", "step": step, "tokens": step * 4096, "loss": 3 - step / 8, **TRAIN}
        for step in range(1, 6)
    ),
    {"kind": "evaluation", "step": 5, "tokens": 20480, "protocol": "suffix", "length": 64, **SCORE},
    *(
        {"protocol": protocol, "length": length, "defined": True, **SCORE}
        for protocol in ("suffix", "window control", "sliding", "non-overlapping")
        for length in (64, 128)
    ),
    {"protocol": "suffix", "length": 256, "defined": False, "loss": None, "perplexity": None},
    {"protocol": "per-position", "length": 128, "bin": 64, "loss": 3.0, "losses": [4.5, 2.5]},
]
POINTS = 5 + 1 + 8 + 2


def start(
    folder: Path,
    overrides: Sequence[str] = (),
    rows: Sequence[dict[str, Any]] = ROWS,
    exit_code: int = 0,
    **environment: str,
) -> "subprocess.Popen[str]":
    """A process that mirrors rows and waits for its standard input to close."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    home = {"HOME": str(folder.parent), "NETRC": str(folder.parent / "netrc")}
    child = "tests.record.mirror_child"
    return subprocess.Popen(
        [sys.executable, "-m", child, str(folder), json.dumps(rows), str(exit_code), *overrides],
        cwd=ROOT,
        env={**clean, **home, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mirror(
    folder: Path,
    overrides: Sequence[str] = (),
    rows: Sequence[dict[str, Any]] = ROWS,
    exit_code: int = 0,
    **environment: str,
) -> tuple[dict[str, float], str]:
    """Mirror rows to the end; returns the seconds it took and what was said on stderr."""
    begun = time.perf_counter()
    process = start(folder, overrides, rows, exit_code, **environment)
    out, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    return {**json.loads(out), "process": time.perf_counter() - begun}, said


def sync(folder: Path, server: FakeWandb) -> StoredRun:
    """Send every segment, as `pipeline sync` does; returns the run that the server then has."""
    subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--include-online", str(folder / "wandb")],
        env={**os.environ, "WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return server.only_run()


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Return when the condition holds."""
    end = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < end, "waited in vain"
        time.sleep(0.05)
