"""Training that is asked to stop by signals, at any instant, ends as one that never was."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.training.fit import _trainer
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import toy_config

pytestmark = pytest.mark.distributed


def struck(out: Path, signals: int, steps: int) -> dict[str, Any]:
    worker = "tests.training.preemption_worker"
    run_ranks(2, worker, str(out), str(signals), str(steps), timeout=60.0 + 5.0 * signals)
    results: dict[str, Any] = torch.load(out / "results.pt", weights_only=True)
    return results


def check(results: dict[str, Any], signals: int) -> None:
    broken, whole = results["broken"], results["whole"]
    assert broken["stops"] == signals and broken["slowest"] < 60.0
    assert broken["rows"] == whole["rows"] and broken["tokens"] == whole["tokens"]
    for name, weight in whole["weights"].items():
        assert torch.equal(weight, broken["weights"][name]), name


def test_lightning_takes_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler is a collective: ranks that were signalled at different places would hang."""
    for name in ("RANK", "LOCAL_RANK", "GROUP_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    before = signal.getsignal(signal.SIGTERM)
    trainer = _trainer(toy_config("rope", processes=1, sequence_parallel=1), [], 0)
    trainer._signal_connector.register_signal_handlers()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_few_signals_change_nothing(tmp_path: Path) -> None:
    results = struck(tmp_path, 4, 60)
    check(results, 4)
    # after the last step there is nothing to stop
    assert results["last"]["rows"][0]["step"] == 1


@pytest.mark.slow
def test_fifty_signals_change_nothing(tmp_path: Path) -> None:
    check(struck(tmp_path, 50, 900), 50)
