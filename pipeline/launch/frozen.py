"""What a job runs, kept as it is when the job is submitted: run folders and a copy of the code.

A job may start days later and again after every interruption; by then the files it was submitted
from may say something else.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.compose import load
from pipeline.config.schema import Config
from pipeline.errors import ConfigError, StorageError
from pipeline.launch.continued import settle
from pipeline.launch.study import varied_keys
from pipeline.record.environment import VERSION, environment
from pipeline.record.folder import RunFolder, run_name

_CODE = ("pipeline", "configs", "slurm", "train.py", "pyproject.toml")
Named = tuple[Config, str]


def named_runs(path: Path, overrides: Sequence[str], task: int | None = None) -> list[Named]:
    """Every run that a configuration asks for, with the name of its folder; or run `task` alone.

    `path` may also be a run folder: then it is that run.

    Raises:
        ConfigError: the configuration is refused, there is no such task, or the run folder is none
            or was moved.
    """
    if path.is_dir():
        folder = RunFolder.open(path)
        runs = settle(load(folder.config, overrides))
        if len(runs) > 1 or task is not None:
            raise ConfigError(f"{path} is the folder of one run: neither --task nor sweep fits")
        runs[0].runs = str(path.parent.parent)
        if RunFolder.at(runs[0], path.name).path.resolve() != path.resolve():
            raise ConfigError(
                f"{path}: its experiment is {runs[0].experiment!r}; name the parent folder so again"
            )
        return [(runs[0], path.name)]
    runs = load(path, overrides)
    axes = varied_keys(runs)
    if task is not None:
        if not 0 <= task < len(runs):
            raise ConfigError(
                f"--task {task}: {path} names {len(runs)} runs, so a task is 0 to {len(runs) - 1}"
            )
        runs = [runs[task]]
    return [(config, run_name(config, axes)) for config in settle(runs)]


def freeze_code(study: Path) -> Path:
    """Copy the code into ``<study>/code/<hash>``, once for each state of it; returns that folder.

    Raises:
        StorageError: the disk refuses.
    """
    top = Path(__file__).resolve().parents[2]
    files = sorted(path for name in _CODE for path in _files(top / name))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(top).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    target = study / "code" / digest.hexdigest()[:12]
    if target.is_dir():
        return target
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        for path in files:
            copy = partial / path.relative_to(top)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        version = {"sha256": digest.hexdigest(), "git": environment()["git"]}
        (partial / VERSION).write_text(json.dumps(version, indent=1) + "\n")
        partial.rename(target)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if target.is_dir():  # of another `submit`, just now
            return target
        raise StorageError(f"{target}: cannot be written: {error.strerror}") from error
    return target


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
