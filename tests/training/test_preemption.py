"""Training that is asked to stop by signals, at any instant, ends as one that never was."""

import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.training.fit import _trainer
from tests.distributed.ranks import run_ranks
from tests.distributed.toy import toy_config
from tests.faults.signalled import Training, launched
from tests.faults.test_hang import left_after

pytestmark = pytest.mark.distributed

DEAF = "import time, signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN); time.sleep(600)"


def struck(out: Path, signals: int, steps: int) -> dict[str, Any]:
    worker = "tests.training.preemption_worker"
    run_ranks(2, worker, str(out), str(signals), str(steps), timeout=300.0 + 5.0 * signals)
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_our_launcher_passes_a_signal_on_to_ranks_that_save(tmp_path: Path, number: int) -> None:
    with Training(tmp_path) as training:
        training.trains()
        training.process.send_signal(number)
        assert training.process.wait(120) == 85
        assert training.left() == []
        said = training.log.read_text()
        assert said.count("stopped as asked") == 1 and "error" not in said
        assert training.saved_steps() >= 3 and not training.locked()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_ranks_of_our_launcher_that_do_not_listen_yet_end_as_asked(number: int) -> None:
    tag = uuid.uuid4().hex
    with launched(tag) as launcher:
        launcher.send_signal(number)
        said = launcher.communicate(timeout=60)[1]
    assert said.startswith("85: stopped as asked") and said.count("\n") == 1
    assert left_after(tag) == []


def test_the_second_sigterm_ends_ranks_that_do_not_come_to_an_end() -> None:
    tag = uuid.uuid4().hex
    with launched(tag, DEAF) as launcher:
        time.sleep(2.0)  # now they are deaf
        for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM):
            launcher.send_signal(number)
            time.sleep(0.5)
        assert launcher.poll() is None
        launcher.send_signal(signal.SIGTERM)
        said = launcher.communicate(timeout=10)[1]
    assert said == "143: stopped by signal 15, and all ranks with it\n"
    assert left_after(tag) == []


@pytest.mark.parametrize(("ignored", "ends"), [(False, 129), (True, 143)])
def test_a_hangup_that_is_ignored_stays_ignored(ignored: bool, ends: int) -> None:
    """As under nohup, when its user logs out."""
    tag = uuid.uuid4().hex
    before = ("env", f"--{'ignore' if ignored else 'default'}-signal=HUP")
    with launched(tag, DEAF, before) as launcher:
        time.sleep(2.0)
        launcher.send_signal(signal.SIGHUP)
        for number in [signal.SIGTERM] * 2 if ignored else ():
            time.sleep(1.0)
            launcher.send_signal(number)
        said = launcher.communicate(timeout=60)[1]
    assert said.startswith(f"{ends}: ")
    assert left_after(tag) == []
