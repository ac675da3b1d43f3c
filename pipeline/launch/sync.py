"""Sends what W&B has not got yet: for login nodes, where compute nodes have no way out.

Every start of a run leaves one segment in ``<run folder>/wandb``, all of one W&B run. Each is sent
once, in the order of the starts, and what was sent is kept in ``wandb/sent.json``.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config.durable import write_file
from pipeline.errors import FarsightError, StorageError
from pipeline.launch.checks import say
from pipeline.launch.tables import find_runs
from pipeline.record import lock
from pipeline.record.wandb_sent import segments


def sync(folders: Sequence[Path]) -> None:
    """Send the segments of these runs that were not sent; that of a job that runs stays for later.

    Raises:
        ConfigError: one of `folders` holds no run.
        FarsightError: W&B did not take a segment; what was sent before is noted.
    """
    lines = []
    for folder in find_runs(folders):
        found, sent = segments(folder), _sent(folder)
        if found and _written(folder):
            say(f"{folder} is being written: its newest segment is sent when that has ended")
            found.pop()
        count = 0
        for segment in found:
            digest = hashlib.sha256(segment.read_bytes()).hexdigest()
            if sent.get(segment.parent.name, {}).get("sha256") == digest:
                continue
            _send(segment)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            sent[segment.parent.name] = {"sha256": digest, "time": now}
            write_file(folder / "wandb" / "sent.json", (json.dumps(sent, indent=1) + "\n").encode())
            count += 1
            say(f"{segment.parent} is sent")
        told = f"{count} of {len(found)} segments sent now, the others before"
        lines.append(f"{folder}: {told if found else 'nothing to send'}")
    # last: a reader who has enough must not end the sending
    print("\n".join(lines))


def _sent(folder: Path) -> dict[str, Any]:
    try:
        sent = json.loads((folder / "wandb" / "sent.json").read_text())
    except (OSError, ValueError):
        return {}  # W&B's own marks keep what it was sent from being sent twice
    return sent if isinstance(sent, dict) else {}


def _written(folder: Path) -> bool:
    try:
        lock.refuse_writer(folder / "lock")
    except StorageError:
        return True
    return False


def _send(segment: Path) -> None:
    """Of a start that was killed, what is whole in its file: nobody writes it any more."""
    command = [sys.executable, "-m", "wandb", "sync", "--include-online", str(segment.parent)]
    # this is the one command that must not be offline
    known = {key: value for key, value in os.environ.items() if key != "WANDB_MODE"}
    done = subprocess.run(command, env=known, capture_output=True, text=True)
    mark = segment.with_name(f"{segment.name}.synced")
    # it then has taken all that is whole, and sending it again would double that
    cut = "the file ends with an incomplete record" in done.stderr + done.stdout
    if done.returncode or not (mark.exists() or cut):
        said = (done.stderr + done.stdout).strip(" \n.").splitlines() or ["no reason given"]
        raise FarsightError(
            f"{segment}: W&B did not take it: {said[-1]}. `wandb login`, or look at the network; "
            "the same command goes on with this segment"
        )
