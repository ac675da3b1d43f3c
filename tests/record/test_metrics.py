import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError, StorageError
from pipeline.record.metrics import MetricsLog, read_rows

ROW: dict[str, Any] = {"kind": "train", "step": 1, "loss": 2.5, "reason": None, "losses": [1.0, 2]}


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(ROW)
        log.write({"text": "line\nbreak, ü and \u2028", "flag": True, "nested": {"a": 1}})
    assert read_rows(path) == [
        ROW, {"text": "line\nbreak, ü and \u2028", "flag": True, "nested": {"a": 1}},
    ]  # fmt: skip


def test_a_row_is_in_the_file_before_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = (
        "import os, sys; from pathlib import Path; from pipeline.record.metrics import MetricsLog\n"
        "MetricsLog(Path(sys.argv[1])).write({'step': 1}); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert read_rows(path) == [{"step": 1}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_and_named(tmp_path: Path, value: float) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for row, name in (
            ({"loss": value}, "loss"),
            ({"losses": [1.0, value]}, "losses"),
            ({"deep": {"er": value}}, r"deep\.er"),
        ):
            with pytest.raises(ValueError, match=f"^{name} = .*finite"):
                log.write(row)
    assert path.read_bytes() == b""


def test_other_types_are_refused_and_named(tmp_path: Path) -> None:
    with (
        MetricsLog(tmp_path / "metrics.jsonl") as log,
        pytest.raises(ValueError, match="folder has type PosixPath"),
    ):
        log.write({"folder": tmp_path})


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "metrics.jsonl"
    whole = b'{"step": 1}\n'
    path.write_bytes(whole + b'{"step": 2}\n'[:cut])
    assert read_rows(path) == [{"step": 1}]


def test_a_cut_line_does_not_weld_itself_to_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    with MetricsLog(path) as log:
        log.write({"step": 3})
    assert read_rows(path) == [{"step": 1}, {"step": 3}]


@pytest.mark.parametrize("bad", [b"", b"{", b"[1]", b'{"loss": NaN}', b"\x00\x00", b"\xff"])
def test_a_bad_line_elsewhere_is_named(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + bad + b'\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: "):
        read_rows(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl: no such file"):
        read_rows(tmp_path / "nothing.jsonl")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no/metrics\.jsonl: cannot be opened"):
        MetricsLog(tmp_path / "no" / "metrics.jsonl")


def test_a_full_disk_is_an_error_and_leaves_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = """
import resource, signal, sys
from pathlib import Path
from pipeline.errors import StorageError
from pipeline.record.metrics import MetricsLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = MetricsLog(Path(sys.argv[1]))
log.write({"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    log.write({"text": "x" * 200})
except StorageError as error:
    print(error)
log.write({"step": 2})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path}: a row of" in done.stdout
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1},
        {"step": 2},
    ]


def test_the_file_ends_with_a_newline_after_each_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(3):
        log.write({"step": step})
        assert path.read_bytes().endswith(b"\n")
        assert os.path.getsize(path) == 12 * (step + 1)
