"""The most memory a subject needs beyond what stays, each measured in a process of its own.

After one step that is not counted, so that weights, optimizer state and libraries are there,
gradients are freed and resident memory is read; then one step runs. The result is the highest
resident memory during it minus that: activations, logits, workspaces and gradients. On a GPU the
same of allocated memory. A process that runs out of memory ends alone, and is reported as that.
"""

import ctypes
import gc
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.bench.cases import Case, build_case, prepare_torch
from pipeline.bench.options import Subject
from pipeline.config.schema import Config
from pipeline.parallel.parent import PARENT, die_with_parent

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """Bytes, None where the platform cannot tell; `failure` says why a subject did not run."""

    bytes: int | None = None
    failure: str | None = None


def measure_peak(subject: Subject, config: Config, threads: int) -> Peak:
    """Run `subject` in a process of its own."""
    environment = {
        **os.environ,
        # glibc keeps freed blocks below its threshold, which grows as they are freed: fix it
        "MALLOC_MMAP_THRESHOLD_": str(2**20),
        PARENT: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).parents[2]), os.getenv("PYTHONPATH")])
        ),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.bench.memory"],
        input=pickle.dumps((subject, config, threads)),
        env=environment,
        capture_output=True,
    )
    if done.returncode < 0:
        return Peak(failure=f"killed by signal {-done.returncode} (9 is often a lack of memory)")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return Peak(failure=lines[-1] if lines else f"exit code {done.returncode}")
    return Peak(bytes=json.loads(done.stdout.splitlines()[-1]))


def step_peak(case: Case, device: torch.device) -> int | None:
    """Bytes that the second run of `case` takes at most on top of what stays after the first."""
    case.run()
    case.clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        case.run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    _trim()
    try:
        _CLEAR.write_text("5")  # the highest resident memory so far is forgotten
    except OSError:
        return None
    before = _resident("VmRSS")
    case.run()
    return _resident("VmHWM") - before


def _trim() -> None:
    """Give freed memory back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(name: str) -> int:
    """VmRSS or VmHWM of this process in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {name}")


def _child() -> None:
    die_with_parent()
    subject, config, threads = pickle.load(sys.stdin.buffer)
    device = prepare_torch(config, threads)
    print(json.dumps(step_peak(build_case(subject, config, device), device)))


if __name__ == "__main__":
    _child()
