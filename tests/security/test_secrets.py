"""A secret that is written into a configuration, or typed, is refused and not shown."""

import os
from pathlib import Path

import pytest

from pipeline.config import load
from pipeline.config.groups import configs_folder
from pipeline.errors import ConfigError
from pipeline.launch.cli import main

BASE = configs_folder() / "base.yaml"
TOKEN = "hf_ThisIsNoRealTokenOfAnybody"
WRITTEN = {
    "an item of a list": f"evaluate: {{tasks: [copy, {TOKEN}]}}",
    "a section": f"trainer: {TOKEN}",
    "a whole sweep": f"sweep: {TOKEN}",
    "an axis": f"sweep: {{seed: {TOKEN}}}",
    "an item of an axis": f"sweep: {{evaluate.tasks: [[{TOKEN}]]}}",
    "an include": f"include: [{TOKEN}]",
    "includes": f"include: {TOKEN}",
    "a key": f"{TOKEN}: 1",
    "a key of a section": f"trainer: {{{TOKEN}: 1}}",
    "an unknown key": f"nonsense: {TOKEN}",
    "an unknown section": f"nonsense: {{deep: [{TOKEN}]}}",
    "a key of W&B": f"wandb: {{api_key: {TOKEN}}}",
    "a path": f"runs: /tmp/{TOKEN}/runs",
    "an address": "data: {source: 's3://someone:hunter2hunter2@bucket/corpus'}",
    "an address without a user": "include: ['https://hunter2hunter2@host/a']",
}


@pytest.mark.parametrize("where", WRITTEN)
def test_a_secret_anywhere_in_a_file_is_refused_and_not_shown(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    path = tmp_path / "run.yaml"
    path.write_text(f"seed: 1\n{WRITTEN[where]}\n")
    with pytest.raises(ConfigError, match=r"run\.yaml:2: .*No setting takes a secret") as caught:
        load(path, [])
    assert TOKEN not in str(caught.value) and "hunter2" not in str(caught.value)


TYPED = [
    f"evaluate.tasks=[copy,{TOKEN}]", f"trainer={TOKEN}", f"sweep={TOKEN}", f"{TOKEN}",
    f"sweep.seed={TOKEN}", f"sweep.evaluate.tasks=[[{TOKEN}]]", f"include=[{TOKEN}]",
    f"WANDB_API_KEY={TOKEN}", f"wandb.api_key={TOKEN}", f"{TOKEN}=1", f"trainer.{TOKEN}=1",
    f"runs=a/{TOKEN}", f"model={TOKEN}", f"runs='[{TOKEN}'", f"runs=[{TOKEN}",
]  # fmt: skip


@pytest.mark.parametrize("typed", TYPED, ids=[text.replace(TOKEN, "KEY") for text in TYPED])
def test_a_secret_that_is_typed_is_refused_and_not_shown(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(BASE), typed]) == 2
    said = capsys.readouterr()
    assert "No setting takes a secret" in said.err
    assert TOKEN not in said.out + said.err
    assert os.listdir(tmp_path) == []
