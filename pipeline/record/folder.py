"""The run folder ``<runs>/<experiment>/<name>/``: all that one run writes, once, by one job.

A folder is created whole or not at all, and never takes rows of two configurations. The marker file
``finished`` comes last, so that a sweep that is started again skips what is done and nothing else.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.changes import Change, changes, words
from pipeline.config.compose import load
from pipeline.config.durable import write_file
from pipeline.config.label import file_name, label
from pipeline.config.redact import public, save, saved_hash
from pipeline.config.schema import NAMED_GROUPS, Config
from pipeline.errors import CheckpointError, ConfigError, StorageError, free_space
from pipeline.record import foreign, lock
from pipeline.record.environment import environment

LONGEST = 127
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}")
NAMED_ALREADY = ("position", "position.name", "train_length", "seed")


def run_name(config: Config, sweep_axes: Sequence[str]) -> str:
    """``<position>-L<train_length>-s<seed>``, then ``-<key><value>`` for each further sweep axis.

    Of other named groups than ``position`` the name alone is added. ``sweep_axes`` are the dotted
    keys that the sweep varies. A group of settings (``model``) or a value that no file name can
    hold appears as the start of its hash. Raises ConfigError for an axis that the configuration
    does not have.
    """
    parts = [f"{config.position['name']}-L{config.train_length}-s{config.seed}"]
    for axis in sweep_axes:
        if axis in NAMED_GROUPS and axis not in NAMED_ALREADY:
            parts.append(_name_value(_look_up(config, f"{axis}.name")))
        elif axis not in NAMED_ALREADY:
            parts.append(axis.rpartition(".")[2] + _name_value(_look_up(config, axis)))
    name = "-".join(parts)
    if len(name) > LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        name = f"{name[: LONGEST - 13]}-{digest}"
    return name


class RunFolder:
    """Paths and state of one run folder: ``create`` one to write it, ``open`` one to read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.metrics = path / "metrics.jsonl"
        self.evaluation = path / "evaluation" / "rows.jsonl"
        self.trained = path / "trained.json"
        self.checkpoints = path / "checkpoints"
        self.restarts = path / "restarts.jsonl"
        self.submitted = path / "submitted.jsonl"
        self.summary = path / "summary.json"
        self._marker = path / "finished"
        self._lock = path / "lock"

    @classmethod
    def at(cls, config: Config, name: str) -> "RunFolder":
        """Where a run of this name lies, whether it is there or not."""
        return cls(Path(config.runs) / config.experiment / name)

    @classmethod
    def create(cls, config: Config, *, name: str) -> "RunFolder":
        """Make the folder with ``config.yaml`` and ``environment.json`` and take its lock.

        A folder of the same configuration, but for settings that may change (``changed``), is
        returned as it is if it is finished, and taken if it is not: the run goes on.
        Raises ConfigError if the folder holds another configuration (naming the keys that differ),
        StorageError if it cannot be written or another job is writing it.
        """
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"run name {name!r}: allowed are {LONGEST} letters, digits and _ . - with a letter "
                "or digit first; change the setting that it comes from"
            )
        folder = cls.at(config, name)
        folder._check_place()
        try:
            folder.path.parent.mkdir(parents=True, exist_ok=True)
            folder.path.mkdir()
        except OSError as error:
            if not folder.path.is_dir():
                raise _not_writable(folder.path, error) from error
            if not folder._barely_begun:
                folder._check_same(config)
                if not folder.finished:
                    folder.take()
                return folder
        try:
            folder.take()
        except StorageError:
            # only if it is empty: it may be another job's
            with contextlib.suppress(OSError):
                folder.path.rmdir()
            raise
        try:
            write_file(folder.environment, (json.dumps(environment(), indent=2) + "\n").encode())
            folder.evaluation.parent.mkdir(exist_ok=True)
            # last: where it is, the folder is whole
            save(config, folder.config)
        except BaseException as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise _not_writable(folder.path, error) from error
            raise
        return folder

    @classmethod
    def check(cls, config: Config, *, name: str) -> None:
        """Refuse what ``create`` would refuse of a folder that exists; nothing is written."""
        folder = cls.at(config, name)
        folder._check_place()
        if folder.path.exists() and not folder._barely_begun:
            folder._check_same(config)

    def _check_place(self) -> None:
        """Raises StorageError if the folder, or one above it, cannot be one."""
        for path in (self.path, *self.path.parents):
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StorageError(
                    f"{self.path} cannot be written: {path} is a file, or a link that leads to no "
                    "folder. Move it away, or choose another experiment or runs=<folder>"
                )

    @property
    def _barely_begun(self) -> bool:
        """Whether the folder is what a kill leaves while it is made: less than a run folder."""
        made = {self._lock.name, self.environment.name, self.config.name}
        made |= {f"{name}.partial" for name in made} | {self.evaluation.parent.name}
        held = {path.name for path in self.path.iterdir()}
        return bool(held) and held <= made and self.config.name not in held

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run folder, finished or not. Raises ConfigError if ``path`` is not one."""
        folder = cls(path)
        if not folder.config.is_file():
            raise ConfigError(
                f"{path} is not a run folder: it has no config.yaml. Run folders are "
                "<runs>/<experiment>/<name>"
            )
        return folder

    def evaluation_of(self, extension: Mapping[str, Any]) -> Path:
        """Where rows go that are measured under an extension; of the one that the run was trained
        under, mostly "none", ``evaluation``."""
        if extension == load(self.config, [])[0].extension:
            return self.evaluation
        return self.evaluation.parent / file_name(label(extension)) / self.evaluation.name

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: all that it writes is there."""
        return self._marker.is_file()

    @property
    def identity(self) -> str:
        """The hash of the configuration that the run began with, as it was saved then."""
        return saved_hash(self.config)

    def trained_facts(self) -> dict[str, Any]:
        """What training left to know of itself, in ``trained.json``.

        Raises CheckpointError if the file is missing, or not as it was written.
        """
        try:
            facts = json.loads(self.trained.read_text())
            whole = isinstance(facts, dict) and isinstance(facts["lineage"], list)
            if not (whole and {"corpus_sha256", "tokenizer_sha256"} <= facts.keys()):
                raise ValueError("it lacks what training wrote there")
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{self.trained}: missing or damaged: {error}. Restore that file, or delete the "
                "run folder and train again"
            ) from error
        return facts

    def check_checkpoint(self, checkpoint: Path, trained_by: str) -> None:
        """Refuse a checkpoint of a configuration, given by its hash, that is not this run's.

        Raises CheckpointError, which names the file that is not as it was.
        """
        if trained_by != self.identity:
            raise foreign.refusal(self.config, self.identity, checkpoint, trained_by)

    def changed(self, config: Config) -> list[Change]:
        """The settings of ``config`` that are not those that the run began with."""
        return changes(load(self.config, [])[0], config)

    def mark_finished(self) -> None:
        """Leave the marker, holding the hash of the configuration, and let go of the lock.

        Raises StorageError if the disk refuses.
        """
        try:
            write_file(self._marker, f"{self.identity}\n".encode())
        except OSError as error:
            raise _not_writable(self.path, error) from error
        self.release()

    def reopen(self) -> None:
        """Take back that the run is finished, and trained: what it then knew of itself goes.

        Raises StorageError if the disk refuses.
        """
        try:
            for path in (self._marker, self.summary, self.trained):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise _not_writable(self.path, error) from error

    def take(self) -> None:
        """Take the lock: no other job may write until ``release``.

        Raises StorageError if a job holds it, or it cannot be written.
        """
        try:
            lock.take(self._lock)
        except OSError as error:
            raise _not_writable(self.path, error) from error

    def release(self) -> None:
        """Let go of the lock: this job writes no more. Does nothing if it is not held."""
        lock.release(self._lock)

    def check_finished(self) -> None:
        """Refuse a finished run whose configuration is not the one that its marker names.

        Raises ConfigError.
        """
        if self.finished and self._marker.read_text(errors="replace").strip() != self.identity:
            raise ConfigError(
                f"{self.config} was changed after the run finished, or {self._marker} was. Restore "
                "it or delete the folder"
            )

    def _check_same(self, config: Config) -> None:
        lock.refuse_writer(self._lock)
        if not self.config.is_file():
            raise ConfigError(
                f"{self.path} exists but is no run folder: it has no config.yaml. Delete it or "
                "choose another experiment"
            )
        fixed = [change for change in self.changed(config) if not change.free]
        if fixed:
            raise ConfigError(
                f"{self.path} holds a run of another configuration: {words(fixed)}. Choose "
                "another experiment or delete the folder"
            )
        self.check_finished()


def _look_up(config: Config, axis: str) -> Any:
    tree: Any = public(config)
    for key in axis.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            raise ConfigError(f"sweep: the configuration has no key {axis!r} to name the run after")
        tree = tree[key]
    return tree


def _name_value(value: Any) -> str:
    """A value as part of a file name; different values of one key give different parts."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,24}", text):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _not_writable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be written: {error.strerror}; {free_space(path)}. Choose a folder that "
        "you may write to with runs=<folder>, or free some space"
    )
