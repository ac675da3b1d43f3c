"""One of two ranks dies or hangs: the other ends in time, the right one is named, none is left."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from pipeline.parallel.watch import NEWER, HangWatch, _Judge
from tests.distributed.ranks import ROOT
from tests.faults.inject import INJECTED

TIMEOUT = 8.0
# within these seconds of a fault all ranks have ended
ENDED = 120.0
WORKER = "tests.faults.hang_worker"
LAUNCH = """
import sys
from pipeline.launch.ranks import start_ranks
from tests.distributed.toy import toy_config
start_ranks(toy_config("rope"), sys.argv[1], sys.argv[2:])
"""
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT),
}  # fmt: skip


def processes_with(tag: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if tag.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def left_after(tag: str, seconds: float = 10.0) -> list[int]:
    """The processes of a test that are still there after some time."""
    end = time.monotonic() + seconds
    while processes_with(tag) and time.monotonic() < end:
        time.sleep(0.1)
    return processes_with(tag)


def wait_for_fault(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert any(line == f"{INJECTED}\n" for line in process.stdout), "it ended before"


def launched(start: list[str], fault: list[str]) -> str:
    """The error output of ranks under a launcher, which must fail in time and leave nobody."""
    tag = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, *start, WORKER, *fault, tag],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_fault(process)
    said = process.communicate(timeout=ENDED)[1]
    assert process.returncode != 0
    assert left_after(tag) == []
    return said


def alone(fault: list[str], worker: str = WORKER) -> list[subprocess.Popen[str]]:
    """Both ranks as srun starts them: nobody ends the one when the other has failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", worker, *fault],
            cwd=ROOT, env={**ENVIRONMENT, **master, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip


@pytest.mark.distributed
def test_a_rank_that_was_killed_is_named() -> None:
    said = launched(["-c", LAUNCH], ["1", "2", "backward", "die", "1000", "1"])
    assert "rank 1 was killed by signal 9" in said


@pytest.mark.distributed
@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_other_rank_ends_also_where_nobody_ends_it(killed: int) -> None:
    """It finds the connection closed; the one that died under it is known to srun."""
    tag = uuid.uuid4().hex
    ranks = alone([str(killed), "2", "backward", "die", "1000", "2", tag])
    wait_for_fault(ranks[killed])
    said = ranks[1 - killed].communicate(timeout=ENDED)[1]
    assert (ranks[killed].wait(), ranks[1 - killed].returncode) == (-signal.SIGKILL, 1)
    assert re.search("Connection (closed|reset) by peer", said), said[-500:]
    assert left_after(tag) == []


@pytest.mark.distributed
@pytest.mark.parametrize("shared", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_a_rank_that_hangs_is_named_and_all_end_by_themselves(shared: str) -> None:
    tag = uuid.uuid4().hex
    ranks = alone(["1", "2", "forward", "hang", str(TIMEOUT), shared, tag])
    wait_for_fault(ranks[1])
    began = time.monotonic()
    said = [rank.communicate(timeout=ENDED)[1] for rank in ranks]
    assert time.monotonic() - began < ENDED
    assert [rank.returncode for rank in ranks] == [1, 1] and left_after(tag) == []
    named = f"error: rank 1 did not move for {TIMEOUT:g} s (trainer.hang_timeout), at step 3,"
    assert named in said[0]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("where", ["backward", "optimizer", "log"])
def test_a_stopped_rank_is_named_though_it_holds_what_ranks_share(where: str) -> None:
    first, second = alone(["0", "2", where, "stop", str(TIMEOUT), "2"])
    try:
        wait_for_fault(first)
        said = second.communicate(timeout=ENDED)[1]
        assert second.returncode == 1 and "error: rank 0 did not move" in said
    finally:
        first.kill()
        first.wait()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
@pytest.mark.parametrize("action", ["hang", "stop"])
def test_launchers_leave_nobody_behind(launcher: str, action: str) -> None:
    start = ["-c", LAUNCH]
    if launcher == "torchrun":
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    said = launched(start, ["1", "2", "optimizer", action, str(TIMEOUT), "2"])
    assert "error: rank 1 did not move" in said


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("event", "ends"), [("none", [0, 0]), ("rest", [0, 0]), ("beats", [0, 0]), ("work", [1, 1])]
)
def test_only_a_rank_that_neither_beats_nor_rests_hangs(event: str, ends: list[int]) -> None:
    ranks = alone(["4", event], "tests.faults.watch_worker")
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == ends, said
    hangs = "error: rank 0 did not move for 4 s (trainer.hang_timeout), at turn 10,"
    assert (hangs in said[1]) == (event == "work")


@pytest.mark.distributed
def test_a_job_that_was_suspended_as_a_whole_goes_on() -> None:
    ranks = alone(["4", "none"], "tests.faults.watch_worker")
    for rank in ranks:
        assert rank.stdout is not None and rank.stdout.readline() == "half way\n"
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for rank in ranks:
            rank.send_signal(number)
        time.sleep(8.0)
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


class TestWhoIsNamed:
    @staticmethod
    def judge(counts: list[int], silent: list[int]) -> _Judge:
        judge = object.__new__(_Judge)
        judge.watch, judge.rank, judge.world = HangWatch(80.0, "test"), 0, len(counts)
        judge.known = [(1, count, f"step {count}") for count in counts]
        judge.silent, judge.asked = silent, NEWER
        return judge

    @pytest.mark.parametrize(
        ("counts", "silent", "named"),
        [
            ([7, 6, 7], [0, 0, 0], [1]),
            ([7, 6, 6], [0, 0, 9], [1, 2]),
            ([7, 7, 7], [0, 9, 0], [1]),
            ([7, 7, 7], [0, 0, 0], []),
            ([7, -1, 7], [0, 9, 0], [1]),
        ],
    )
    def test_the_lowest_count_then_silence(
        self, counts: list[int], silent: list[int], named: list[int]
    ) -> None:
        judge = self.judge(counts, silent)
        assert judge.behind() == named
        if len(named) == 1:
            assert f"rank {named[0]} did not move for 80 s" in judge.words(named)
        if not named:
            assert "no rank moved" in judge.words(named)

    @pytest.mark.parametrize(
        ("rank", "launcher", "named"),
        [(2, "False", [0]), (0, "False", [1]), (2, "True", [1])],
    )
    def test_a_store_without_an_answer_stands_for_its_holder(
        self, rank: int, launcher: str, named: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", launcher)
        judge = self.judge([7, 6, 7], [9, 9, 9])
        judge.rank, judge.asked = rank, NEWER - 1
        assert judge.behind() == named


def test_alone_or_switched_off_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HangWatch, "_start", lambda self: pytest.fail("watched"))
    HangWatch(80.0, "alone").beat("step 1")
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    HangWatch(0.0, "off").beat("step 1")
