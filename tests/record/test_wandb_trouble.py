"""Whatever is wrong with W&B: training goes on, one warning, bounded time, no row lost."""

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.record.fake_wandb import FakeWandb
from tests.record.mirroring import (
    KEY,
    POINTS,
    ROWS,
    SHORT,
    SHORT_FINISH,
    mirror,
    start,
    sync,
    wait_for,
)

NOBODY = "http://127.0.0.1:9"


def test_a_dead_server_costs_bounded_time_one_warning_and_no_row(
    folder: Path, server: FakeWandb
) -> None:
    seconds, said = mirror(folder, SHORT, WANDB_API_KEY=KEY, WANDB_BASE_URL=NOBODY)
    assert seconds["log"] < 0.05
    assert seconds["finish"] < 4 + 2 + 2
    assert len(said.splitlines()) == 1
    assert "server was not reached" in said
    assert len(sync(folder, server).rows) == POINTS


@pytest.mark.slow
def test_a_server_that_accepts_and_never_answers_is_the_same(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        seconds, said = mirror(folder, SHORT, WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
    assert seconds["log"] < 0.05
    assert seconds["process"] < 15
    assert len(said.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 500])
def test_a_server_that_refuses_is_the_same(folder: Path, server: FakeWandb, status: int) -> None:
    server.status = status
    _, said = mirror(folder, SHORT, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert len(said.splitlines()) == 1
    server.status = 200
    assert len(sync(folder, server).rows) == POINTS


def test_a_key_that_is_none_is_named(folder: Path, server: FakeWandb) -> None:
    _, said = mirror(folder, SHORT, WANDB_API_KEY="short", WANDB_BASE_URL=server.url)
    assert len(said.splitlines()) == 1
    assert "AuthenticationError" in said


def test_a_server_that_dies_during_training_loses_no_row(folder: Path, server: FakeWandb) -> None:
    with FakeWandb() as dying:
        process = start(folder, SHORT_FINISH, WANDB_API_KEY=KEY, WANDB_BASE_URL=dying.url)
        wait_for(lambda: dying.runs)
    begun = time.perf_counter()
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["finish"] < 2 + 5
    assert time.perf_counter() - begun < 12
    assert sum("metrics.jsonl is complete" in line for line in said.splitlines()) == 1
    assert len(sync(folder, server).rows) == POINTS


@pytest.mark.slow
def test_a_client_that_stops_answering_holds_nobody_up(folder: Path, server: FakeWandb) -> None:
    process = start(folder, SHORT_FINISH, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert process.stdin
    assert process.stderr
    assert server.url in process.stderr.readline()
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    services = [int(child) for task in tasks for child in task.read_text().split()]
    assert services
    for service in services:
        os.kill(service, signal.SIGSTOP)
    try:
        process.stdin.close()
        assert process.wait(timeout=2 + 5 + 10) == 0
    finally:
        for service in services:
            os.kill(service, signal.SIGKILL)
    assert "client does not answer" in process.stderr.read()


def test_a_missing_package_is_said_once(folder: Path) -> None:
    (folder.parent / "wandb.py").write_text("raise ImportError('no wandb here')")
    _, said = mirror(folder, PYTHONPATH=str(folder.parent))
    assert len(said.splitlines()) == 1
    assert "cannot be imported (ImportError: no wandb here)" in said


def test_a_folder_that_takes_no_run_is_said_once(folder: Path) -> None:
    (folder / "wandb_id").mkdir()
    _, said = mirror(folder)
    assert sum("no run could be started" in line for line in said.splitlines()) == 1


def test_a_picture_that_is_not_there_is_said_once_and_the_rows_arrive(
    folder: Path, server: FakeWandb
) -> None:
    image = {"image": "eval/passkey_heatmap", "path": str(folder / "none.png")}
    seconds, said = mirror(
        folder, rows=[image, image, *ROWS], WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url
    )
    assert said.count("none.png was not taken") == 1
    assert seconds["log"] < 0.05
    assert len(server.only_run().rows) == POINTS


def test_a_row_that_cannot_be_taken_is_said_once_and_the_others_arrive(
    folder: Path, server: FakeWandb
) -> None:
    rows = [{"protocol": 3}, {"odd": 1}, *ROWS]
    _, said = mirror(folder, rows=rows, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert said.count("a row was not taken") == 1
    assert len(server.only_run().rows) == POINTS


def test_without_a_home_folder_the_client_says_nothing_of_itself(folder: Path) -> None:
    _, said = mirror(folder, HOME="", XDG_CACHE_HOME="", WANDB_MODE="offline")
    assert said == ""
