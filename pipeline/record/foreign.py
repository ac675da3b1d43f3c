"""Which file is not as it was, where `config.yaml` and a checkpoint are of two configurations."""

import json
from pathlib import Path

from pipeline.errors import CheckpointError


def refusal(config: Path, own: str, checkpoint: Path, trained_by: str) -> CheckpointError:
    """What is said of a checkpoint that is not of the configuration that its run folder names.

    The rest of the folder decides between a `config.yaml` that was changed and a checkpoint that
    was copied in.

    Args:
        config: the `config.yaml` of the run folder.
        own: its hash.
        checkpoint: the folder `step-N`.
        trained_by: the hash of the configuration that it names; not `own`.
    """
    others = _configurations(config.parent, but=checkpoint)
    if own in others:
        return CheckpointError(
            f"{checkpoint} was trained under another configuration than {config} and {others[own]} "
            f"name: it is of another run. Move it out of {checkpoint.parent}"
        )
    if others.keys() == {trained_by}:
        return CheckpointError(
            f"{config} is not what {checkpoint} and {others[trained_by]} were trained under: it "
            "was changed. Restore that file"
        )
    return CheckpointError(
        f"{checkpoint} was trained under another configuration than {config} says now. Restore "
        "that file if it was changed; if the checkpoint is of another run, move it out of "
        f"{checkpoint.parent}"
    )


def _configurations(run: Path, but: Path) -> dict[str, Path]:
    """By its hash, each configuration that something in a run folder names, and what names it: a
    checkpoint other than `but`, or the marker of a finished run.

    Manifests that cannot be read are left out; their seals are not asked.
    """
    found: dict[str, Path] = {}
    for path in sorted((run / "checkpoints").glob("step-*/manifest.json")):
        try:
            named = json.loads(path.read_text())["config_hash"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if path.parent != but and not path.parent.name.endswith(".partial"):
            found[str(named)] = path.parent
    marker = run / "finished"
    if marker.is_file():
        found[marker.read_text(errors="replace").strip()] = marker
    return found
