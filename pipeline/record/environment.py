"""What a run ran on, for its ``environment.json``: enough to repeat it, nothing private.

No environment variables, user names, host names or command lines: those can hold secrets.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

MEASURING = ("positions", "model", "parallel", "data", "evaluate")
TRAINING = (
    "model", "parallel", "data", "training", "checkpoint",
    # weights are trained on under an extension; what settings mean, and the shares of tasks
    "evaluate/extended.py", "config/schema.py", "config/tasks.py",
)  # fmt: skip
VERSION = "version.json"
"""A file of this name beside ``pipeline`` says which commit a copy of the code was made from."""
PACKAGES = ("torch", "deepspeed", "lightning", "wandb", "sentencepiece", "numpy", "omegaconf")


def environment() -> dict[str, Any]:
    """Versions, platform, processor and git commit; a package that is not installed is null.

    ``cores`` counts the cores this process may use. Imports none of the packages.
    """
    return {
        "python": platform.python_version(),
        "packages": versions(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": _cores(),
        "git": _git(),
    }


def versions() -> dict[str, str | None]:
    """The versions of the packages that a run stands on; null for one that is not installed."""
    return {package: _version(package) for package in PACKAGES}


def code_sha256() -> str:
    """sha256 over the sources that numbers are measured by, whatever a commit says of them."""
    return _sources_sha256(MEASURING)


def training_sha256(shared: Iterable[str], own: Iterable[str]) -> str:
    """sha256 over the sources that decide which weights a configuration and a text lead to.

    Two, with a colon between: of what all encodings share, with `shared` of their package, and of
    `own`, the files of one encoding. So a new encoding stands beside those trained before it.
    """
    return f"{_sources_sha256([*TRAINING, *shared])}:{_sources_sha256(own)}"


def _sources_sha256(names: Iterable[str]) -> str:
    """Of files, and of all Python files in folders, given below ``pipeline``."""
    top, total = Path(__file__).resolve().parents[1], hashlib.sha256()
    patterns = [name if name.endswith(".py") else f"{name}/**/*.py" for name in names]
    for path in sorted(path for pattern in patterns for path in top.glob(pattern)):
        total.update(f"{path.relative_to(top).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int | None:
    # Not every platform can tell which cores a process may use.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git() -> dict[str, Any] | None:
    """Commit of the source tree and whether it was changed since; null outside a git work tree."""
    source = Path(__file__).resolve().parents[2]
    if (source / VERSION).is_file():
        copied: dict[str, Any] | None = json.loads((source / VERSION).read_text())["git"]
        return copied
    top = _ask_git(source, "rev-parse", "--show-toplevel")
    # An installed copy may lie inside somebody else's repository, whose commit would say nothing.
    if top is None or Path(top).resolve() != source:
        return None
    commit = _ask_git(source, "rev-parse", "--verify", "HEAD")
    changes = _ask_git(source, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": bool(changes)} if commit else None


def _ask_git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
