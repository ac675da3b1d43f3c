"""When two evaluations measure the same, so that one may go on with the rows of the other."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.config.compose import load
from pipeline.launch import evaluation

MANIFEST = {"sha256": "a" * 64, "step": 5, "tokens": 40}
PREPARED = SimpleNamespace(corpus_sha256="c" * 64, tokenizer=SimpleNamespace(sha256="d" * 64))


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "code_sha256", lambda: "f" * 64)


def identity(config: Any, **changes: Any) -> str:
    manifest = {**MANIFEST, **changes}
    return evaluation._identity(config, manifest, PREPARED, torch.device("cpu"))  # type: ignore[arg-type]


def test_settings_of_a_test_count() -> None:
    identities = set()
    for stride in ("0.5", "0.25"):
        config = load(
            Path("configs/smoke.yaml"), ["position=rope", f"evaluate.stride_fraction={stride}"]
        )[0]
        identities.add(identity(config))
        assert identity(config) == identity(replace(config))
    assert len(identities) == 2


def test_weights_text_and_code_count(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(Path("configs/smoke.yaml"), ["position=rope"])[0]
    known = identity(config)
    assert identity(config) == known
    assert identity(config, sha256="b" * 64) != known
    assert identity(replace(config, seed=1)) != known
    monkeypatch.setattr(evaluation, "code_sha256", lambda: "e" * 64)
    assert identity(config) != known
