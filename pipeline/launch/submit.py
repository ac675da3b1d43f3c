"""Hands runs to SLURM: everything is checked and kept before, so that no job starts in vain."""

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.launch.checks import check_model, data_key, describe, prepare_all, say
from pipeline.launch.continued import check_same_origin, check_tokenizer
from pipeline.launch.frozen import Named, freeze_code, named_runs
from pipeline.launch.status import queue, submitted
from pipeline.launch.study import check_names
from pipeline.record.environment import code_sha256
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog

# site.env is for shells: the user's own may not have read it
_BATCH = 'code=$1; shift; source "$code/slurm/site.env"; FARSIGHT_CODE=$code exec sbatch "$@"'


def submit(
    path: Path,
    overrides: Sequence[str],
    *,
    array: bool,
    at_once: int | None,
    options: Sequence[str],
    dry: bool,
) -> None:
    """Submit one run, or with `array` all runs of a configuration as one array job.

    Their folders are made, with the configuration, and beside them a copy of the code, which the
    job runs. Runs that are finished, or that a job is there for, are left out.

    Args:
        path: a configuration, or a run folder.
        overrides: settings.
        array: whether there may be several runs.
        at_once: of an array, run so many at a time; None = as SLURM likes.
        options: more for sbatch; they win.
        dry: say what would be done, and do nothing.

    Raises:
        ConfigError: a run is refused, or sbatch refuses the job.
        DataError: the corpus does not serve, or a run folder is damaged.
        StorageError: a folder cannot be written, or a job writes it.
    """
    if at_once is not None and not (array and at_once > 0):
        raise ConfigError(f"--at-once {at_once}: a number above 0, together with --array")
    named = _wanted(named_runs(path, overrides))
    if not named:
        say("nothing to submit")
        return
    if len(named) > 1 and not array:
        raise ConfigError(f"{path} names {len(named)} runs; submit them as one --array")
    command = [*_shape([config for config, _ in named]), *options]
    study = Path(named[0][0].runs) / named[0][0].experiment
    stem = time.strftime("submitted-%Y%m%d-%H%M%S", time.gmtime())
    if array:
        most = f"%{at_once}" if at_once else ""
        command += [f"--array=0-{len(named) - 1}{most}"]
        script, argument = "sweep.sbatch", str(study / f"{stem}.txt")
    else:
        script, argument = "train.sbatch", str(RunFolder.at(*named[0]).path)
    if dry:
        for config, name in named:
            print(f"# {name}: {describe(config)}")
        print(shlex.join(["sbatch", *command, f"slurm/{script}", argument]))
        return
    if shutil.which("sbatch") is None:
        raise ConfigError("sbatch is not installed here: submit on a login node of a SLURM cluster")
    folders = _freeze(named)
    code = freeze_code(study).resolve()
    if array:
        argument = str(_listed(study / stem, folders))
    job = _sbatch(code, [*command, str(code / "slurm" / script), argument])
    for number, folder in enumerate(folders):
        _note(folder, f"{job}_{number}" if array else job, code)
    print(f"job {job}: {len(folders)} run{'s' * (len(folders) > 1)} in {study}")


def _listed(stem: Path, folders: Sequence[RunFolder]) -> Path:
    """A new file that names the folders, for the tasks of an array: two submitted in one second
    get two."""
    number = 0
    while True:
        path = stem.with_name(f"{stem.name}{f'-{number}' if number else ''}.txt")
        try:
            with path.open("x") as file:
                file.write("".join(f"{folder.path}\n" for folder in folders))
        except FileExistsError:
            number += 1
            continue
        return path


def _note(folder: RunFolder, job: str, code: Path) -> None:
    """Keep in the run folder what it was submitted as."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    row = {"time": now, "job": job, "code": str(code), "code_sha256": code_sha256()}
    with MetricsLog(folder.submitted) as log:
        log.write(row)


def _wanted(named: Sequence[Named]) -> list[Named]:
    """Those that are neither finished nor in the queue; all are checked.

    Raises:
        ConfigError: a run is refused, or two would share a folder.
    """
    check_names(named)
    wanted, jobs = [], queue() or {}
    for number, (config, name) in enumerate(named, start=1):
        say(f"checking run {number} of {len(named)}: {name}")
        check_model(config)
        RunFolder.check(config, name=name)
        folder = RunFolder.at(config, name)
        job = jobs.get(submitted(folder) or "")
        if folder.finished:
            say(f"{folder.path} is finished; left out")
        elif job is not None and job.active:
            say(f"{folder.path} is job {job.number}, {job.state.lower()}; left out")
        else:
            wanted.append((config, name))
    return wanted


def _shape(configs: Sequence[Config]) -> list[str]:
    """The ranks to ask for.

    Raises:
        ConfigError: tasks of one array would need different ones.
    """
    shapes = {(c.trainer.nodes, c.trainer.processes, c.trainer.threads) for c in configs}
    if len(shapes) > 1:
        raise ConfigError(
            "sweep: the tasks of an array have the same trainer.nodes, trainer.processes and "
            "trainer.threads; submit the others apart"
        )
    nodes, processes, threads = shapes.pop()
    asked = [f"--nodes={nodes}", f"--ntasks-per-node={processes}"]
    return asked if threads is None else [*asked, f"--cpus-per-task={threads}"]


def _freeze(named: Sequence[Named]) -> list[RunFolder]:
    """The folders of these runs, made where they are not there, with the text prepared."""
    say(f"preparing the text and the folders of {len(named)} runs, and a copy of the code")
    prepared = prepare_all([config for config, _ in named])
    for config, _ in named:
        check_tokenizer(config, prepared[data_key(config.data)])
    folders = []
    for config, name in named:
        folder = RunFolder.create(config, name=name)
        try:
            check_same_origin(config, folder)
        finally:
            folder.release()
        folders.append(folder)
    return folders


def _sbatch(code: Path, arguments: Sequence[str]) -> str:
    """Submit; returns the number of the job.

    Raises:
        ConfigError: sbatch refuses.
    """
    shell = ["bash", "-c", _BATCH, "submit", str(code), "--parsable", "--export=ALL", *arguments]
    done = subprocess.run(shell, capture_output=True, text=True)
    # with several clusters: `<number>;<cluster>`
    number = done.stdout.strip().partition(";")[0]
    if done.returncode or not number.isdecimal():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        words = "; ".join(re.sub("^sbatch: (error: )?", "", line) for line in said)
        raise ConfigError(f"sbatch refused the job: {words}")
    return number
