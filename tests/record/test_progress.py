"""Progress where nobody watches a terminal."""

import sys

import pytest

from pipeline.record.progress import progress_bar


def test_a_log_has_one_state_a_line_and_what_was_done_before_is_no_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    bar = progress_bar(100, "rope", "step", done=60)
    for _ in range(4):
        clock[0] += 20.0
        bar.update(10)
    bar.close()
    print("stopped as asked", file=sys.stderr)
    *states, last = capsys.readouterr().err.splitlines()
    assert last == "stopped as asked" and "\r" not in "".join(states)
    assert [state.split("|")[-1].split()[0] for state in states[:5]] == [
        f"{n}/100" for n in (60, 70, 80, 90, 100)
    ]
    assert "s/step" in states[1] and "2.00s/step" in states[-1]  # 40 steps in 80 seconds
