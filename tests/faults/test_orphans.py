"""Whoever started the ranks is killed: none of them is left behind."""

import signal
import uuid
from pathlib import Path

import pytest

from tests.faults.signalled import TORCHRUN, Training, launched
from tests.faults.test_hang import left_after

pytestmark = pytest.mark.distributed


def test_ranks_that_still_load_end_with_our_launcher() -> None:
    tag = uuid.uuid4().hex
    with launched(tag) as launcher:
        launcher.kill()
    assert left_after(tag) == []


def test_ranks_that_torchrun_has_just_started_end_with_it(tmp_path: Path) -> None:
    """Some before they could ask to be told, some when they wait for each other."""
    with Training(tmp_path, TORCHRUN) as training:
        training.ranks()
        training.process.kill()
        assert training.left() == []
        assert training.log.read_text().count("stopped as asked before the first step") == 2


@pytest.mark.slow
def test_ranks_save_and_end_when_torchrun_is_killed(tmp_path: Path) -> None:
    with Training(tmp_path, TORCHRUN) as training:
        training.trains()
        training.process.send_signal(signal.SIGKILL)
        assert training.left() == []
        said = training.log.read_text()
        assert f"stopped as asked after step {training.saved_steps()};" in said
        assert training.saved_steps() >= 3 and not training.locked()
        assert "Traceback" not in said and "C++" not in said
