"""Content that runs code when it is unpickled: it leaves a folder, the canary, where it is told."""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


class Canary:
    """Makes the folder `path` where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.path,)


def plain_pickle(path: Path) -> bytes:
    """A bare pickle."""
    return pickle.dumps({"a": Canary(path)})


def torch_file(path: Path) -> bytes:
    """What torch.save writes today, an archive with a pickle in it."""
    return _saved({"a": Canary(path), "b": torch.ones(3)}, _use_new_zipfile_serialization=True)


def old_torch_file(path: Path) -> bytes:
    """What torch.save wrote before it was an archive."""
    return _saved({"a": Canary(path)}, _use_new_zipfile_serialization=False)


def script(path: Path) -> bytes:
    """A compiled module of torch, which torch.load would hand to another loader."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), buffer)
    return buffer.getvalue()


def arrays(path: Path) -> bytes:
    """An .npz whose one array holds objects."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, nats=np.array([Canary(path)], dtype=object))
    return buffer.getvalue()


def tag(path: Path) -> bytes:
    """YAML that a careless reader makes a call of."""
    return f"position: !!python/object/apply:os.mkdir [{path}]\n".encode()


def _saved(content: Any, **how: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **how)
    return buffer.getvalue()


PAYLOADS = (plain_pickle, torch_file, old_torch_file, script, arrays, tag)


def put(folder: Path, file: str, content: bytes) -> None:
    """Exchange a file of a checkpoint, and everything in its manifest that tells of it."""
    (folder / file).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][file] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    seal_again(folder, manifest)


def seal_again(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the seal that fits what it says."""
    manifest.pop("seal")
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({**manifest, "seal": seal}))
