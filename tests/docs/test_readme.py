"""The README's commands and its example encoding do what it says."""

import math
import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

import pipeline.positions
from pipeline.config.compose import load
from pipeline.launch.cli import main
from pipeline.model.attention import attention
from pipeline.positions import registry
from pipeline.positions.base import Shape, Site
from tests.distributed.ranks import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, text in BLOCKS
    if language == "bash"
    for line in text.splitlines()
    if line.strip()
]


def test_the_readme_names_the_commands_that_matter() -> None:
    assert {"make demo", "make test"} <= set(COMMANDS)
    assert len([c for c in COMMANDS if c.startswith("python")]) >= 8


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_exist(command: str) -> None:
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python train.py")])
def test_train_commands_resolve(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    arguments = [a for a in shlex.split(command)[2:] if a != "--dry-run"]
    assert main(["train", *arguments, "--dry-run"]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize("command", [c for c in COMMANDS if "-m pipeline" in c])
def test_pipeline_commands_are_understood(
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Folders that a reader has and this test has not are refused as such, not as usage."""
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command)[3:]
    if arguments[0] == "bench":
        # refused after everything else on the line was understood
        assert main([*arguments, "--repeats", "0"]) == 2
        assert "--repeats=0" in capsys.readouterr().err
        return
    if arguments[0] == "prepare":
        arguments[1] = str(ROOT / arguments[1])
    code = main(arguments)
    printed = capsys.readouterr()
    if arguments[0] == "positions":
        assert code == 0 and "rope" in printed.out
    else:
        assert code == 2 and re.search("FOLDER|run folder", printed.err)


def test_the_example_encoding_works_from_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = next(text for language, text in BLOCKS if language == "python" and "Position" in text)
    (tmp_path / "logarithmic_example.py").write_text(code)
    monkeypatch.setattr(
        pipeline.positions, "__path__", [*pipeline.positions.__path__, str(tmp_path)]
    )
    assert "logarithmic_example" in registry.names()
    shape = Shape(width=16, layers=1, heads=2, train_length=8)
    position = registry.build({"name": "logarithmic_example", "start": 2.0}, shape)
    q, k, v = (torch.randn(1, 2, 8, 8, requires_grad=True) for _ in range(3))
    ids, site = torch.arange(8)[None], Site(0, range(2), 8)
    position("attend", attention, q, k, v, ids, site).sum().backward()
    table = position("scores", q, k, ids, site).table
    assert table[1, 3].item() == pytest.approx(-2.0 * math.log(4.0))
    slopes = dict(position.named_parameters())["slopes"]
    assert isinstance(slopes, nn.Parameter) and slopes.grad is not None


def test_every_config_in_the_readme_exists() -> None:
    for path in set(re.findall(r"configs/[\w/]+\.yaml", README)):
        assert (ROOT / path).is_file(), path
        load(ROOT / path, [])
