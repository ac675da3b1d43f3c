"""What W&B has of a run, as its own reader tells."""

import signal
from pathlib import Path

import pytest

from pipeline.record.wandb_sent import Sent, furthest, last_values

READER = """
import json, os, signal
os.kill(os.getpid(), signal.{signal})
print(json.dumps({{"type": "output", "output": {{"line": "a\\x85b"}}}}, ensure_ascii=False))
for kind, number in (("history", 20), ("summary", 40), ("history", 40), ("summary", 60)):
    print(json.dumps({{"type": kind, kind: {{"item": {{"train/tokens": number}}}}}}))
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_the_reader_outlives_the_signals_of_a_job(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for W&B's, which signals itself as SLURM would; a summary without its row, as a
    kill leaves it, is nothing that was sent."""
    (tmp_path / "wandb.py").write_text(READER.format(signal=number.name))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert last_values(tmp_path / "run.wandb") == {"train/tokens": 40}


def test_why_the_reader_fails_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.wandb").write_bytes(b"nothing of W&B's")
    with pytest.raises(OSError, match=r"run\.wandb: exit code "):
        last_values(tmp_path / "run.wandb")


def test_of_several_starts_the_one_that_came_furthest_counts() -> None:
    assert furthest({}).tokens == -1
    sent = furthest({"train/tokens": 40, "train/step": 4}, {}, {"train/tokens": 20})
    assert sent == Sent({"train/tokens": 40, "train/step": 4})
    assert sent.holds({"train/tokens": 30, "train/step": 3, "train/loss": 1.0})
    assert sent.holds({"train/tokens": 40, "train/step": 4, "train/loss": 1.0})
    assert not sent.holds({"train/tokens": 40, "train/suffix_loss_L64": 1.0})
    assert not sent.holds({"train/tokens": 50, "train/step": 5, "train/loss": 1.0})
