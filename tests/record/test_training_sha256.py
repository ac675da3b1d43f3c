"""Which changes of the code make another training of the same configuration."""

import shutil
from pathlib import Path

import pytest

from pipeline.positions.registry import sources
from pipeline.record import environment
from pipeline.record.environment import training_sha256


@pytest.mark.parametrize(
    ("file", "decides"),
    [
        ("positions/rope.py", True), ("positions/ids/pose.py", True), ("positions/base.py", True),
        ("positions/partial_rope.py", True), ("positions/extensions/yarn.py", True),
        ("positions/extensions/ntk_by_parts.py", True),
        ("positions/alibi.py", False), ("positions/ids/randomized.py", False),
        ("model/decoder.py", True),
        ("parallel/ulysses.py", True), ("data/module.py", True), ("training/optimizer.py", True),
        ("training/callbacks/checkpoint.py", True), ("checkpoint/state.py", True),
        ("evaluate/extended.py", True), ("config/schema.py", True), ("config/tasks.py", True),
        ("evaluate/score.py", False), ("report/page.py", False), ("launch/status.py", False),
    ],
)  # fmt: skip
def test_the_code_of_a_training_is_what_decides_its_weights(
    file: str, decides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = sources("partial_rope", "pose", "yarn")
    source, before = Path(environment.__file__).parents[1], training_sha256(*parts)
    shutil.copytree(source, tmp_path / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "pipeline" / "record" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(copy))
    assert training_sha256(*parts) == before
    changed = tmp_path / "pipeline" / file
    changed.write_text(changed.read_text() + "x = 1\n")
    after = training_sha256(*parts)
    assert (after != before) == decides
    own = file.startswith("positions/") and file != "positions/base.py"
    assert (after.split(":")[0] != before.split(":")[0]) == (decides and not own)
