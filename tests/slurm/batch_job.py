"""One job, whose batch script is run by bash with stand-ins for the programs it calls."""

import os
import subprocess
from pathlib import Path

from tests.architecture.tree import ROOT


class Job:
    """One job of 2 nodes x 4 tasks x 8 CPUs; `env` may be changed before `run`."""

    def __init__(self, folder: Path) -> None:
        programs, self.seen = folder / "programs", folder / "seen"
        (folder / "venv" / "bin").mkdir(parents=True)
        (folder / "venv" / "bin" / "activate").touch()
        programs.mkdir()
        self.seen.mkdir()
        self.answers = {
            "scontrol": "echo node7; echo node8",
            "srun": f"env > {self.seen}/env\n"
            '[ -z "${TOLD:-}" ] || echo "$TOLD" > "$FARSIGHT_MARKER"\n'
            "exit ${SRUN_CODE:-0}",
            "python": "",
            "sleep": "",
        }
        for name, answer in self.answers.items():
            record = f"printf '%s\\n' \"$@\" | tee -a {self.seen}/{name}s > {self.seen}/{name}"
            (programs / name).write_text(f"#!/bin/bash\n{record}\n{answer}\n")
            (programs / name).chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FARSIGHT_VENV": str(folder / "venv"),
            "SLURM_SUBMIT_DIR": str(ROOT),
            "SLURM_JOB_ID": "1234567",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_NTASKS_PER_NODE": "4",
            "SLURM_CPUS_PER_TASK": "8",
        }

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(ROOT / "slurm" / script), *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def arguments(self, program: str) -> list[str]:
        """Those of its last call."""
        return (self.seen / program).read_text().splitlines()

    def every(self, program: str) -> list[str]:
        """Those of all its calls."""
        return (self.seen / f"{program}s").read_text().splitlines()

    def rank_env(self) -> dict[str, str]:
        lines = (self.seen / "env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)
