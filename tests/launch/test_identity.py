"""When two evaluations measure the same, so that one may go on with the rows of the other."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.config.compose import load
from pipeline.config.redact import config_hash
from pipeline.launch import evaluation

MANIFEST = {"sha256": "a" * 64, "step": 5, "tokens": 40}
PREPARED = SimpleNamespace(corpus_sha256="c" * 64, tokenizer=SimpleNamespace(sha256="d" * 64))


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "code_sha256", lambda: "f" * 64)


def identity(config: Any, **changes: Any) -> str:
    manifest = {**MANIFEST, **changes}
    return evaluation._identity(config, manifest, PREPARED, torch.device("cpu"))  # type: ignore[arg-type]


def test_settings_from_the_environment_count_by_their_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their text in the file, which the saved configuration keeps, stays the same."""
    path = tmp_path / "study.yaml"
    path.write_text("evaluate: {stride_fraction: '${oc.env:FARSIGHT_STRIDE}'}")
    hashes, identities = set(), set()
    for stride in ("0.5", "0.25"):
        monkeypatch.setenv("FARSIGHT_STRIDE", stride)
        config = load(path, [])[0]
        hashes.add(config_hash(config))
        identities.add(identity(config))
        assert identity(config) == identity(replace(config))
    assert len(hashes) == 1 and len(identities) == 2


def test_weights_text_and_code_count(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(Path("configs/smoke.yaml"), ["position=rope"])[0]
    known = identity(config)
    assert identity(config) == known
    assert identity(config, sha256="b" * 64) != known
    assert identity(replace(config, seed=1)) != known
    monkeypatch.setattr(evaluation, "code_sha256", lambda: "e" * 64)
    assert identity(config) != known
