"""A run that was trained, and lost what training left to know of itself."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoint.export import save_export
from pipeline.checkpoint.state import MOMENTS, TrainingState
from pipeline.launch.resuming import resume
from pipeline.record.folder import RunFolder
from tests.launch.made_origin import small_config
from tests.launch.test_resuming import Text


def test_an_export_that_will_be_replaced_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(tmp_path / "runs")
    folder = RunFolder.create(config, name="a")
    folder.metrics.write_text("")
    weights = {"w": torch.ones(3)}
    export = save_export(
        folder.checkpoints, weights, step=8, tokens=800, config_hash=folder.identity
    )
    text: Any = Text()
    again = resume(config, folder, text, torch.device("cpu"), None)
    said = capsys.readouterr().err
    assert f"{export} holds the weights of a whole training, but {folder.trained} is" in said
    assert "before its first checkpoint" not in said
    # as it is said: they are replaced
    moments = {moment: weights for moment in MOMENTS}
    again.keeper.save(TrainingState(2, 200, 4.0, weights, moments))
    assert again.state is None and not export.exists()
