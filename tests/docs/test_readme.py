"""The README's commands and its example encoding do what it says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.compose import load
from pipeline.launch.cli import main
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
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A run to be continued, which a reader has and this test has not, is missed as such."""
    monkeypatch.chdir(tmp_path)
    config, *arguments = [a for a in shlex.split(command)[2:] if a != "--dry-run"]
    code = main(["train", str(ROOT / config), *arguments, "--dry-run"])
    printed = capsys.readouterr()
    if any("init_from" in text for text in (command, (ROOT / config).read_text())):
        assert code == 2 and "runs/demo/rope-L128-s0 is not a run folder" in printed.err
    else:
        assert code == 0 and "parameters" in printed.out


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
    if arguments[0] in ("prepare", "submit", "plan"):
        arguments[1] = str(ROOT / arguments[1])
    code = main(arguments)
    printed = capsys.readouterr()
    if arguments[0] in ("positions", "submit", "plan"):
        assert code == 0 and "rope" in printed.out
    else:
        assert code == 2 and re.search("FOLDER|run folder", printed.err)


def python_block(word: str) -> str:
    return next(text for language, text in BLOCKS if language == "python" and word in text)


@pytest.mark.slow
def test_the_example_encoding_is_proven_from_its_files_alone(tmp_path: Path) -> None:
    """A file, a yaml and the formula in loops, put into a copy: the battery takes it, by every
    path, and a wrong formula fails it."""
    for name in ("pipeline", "configs", "tests", "pyproject.toml"):
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (tmp_path / "pipeline/positions/logarithmic.py").write_text(python_block("Position"))
    (tmp_path / "configs/position/logarithmic.yaml").write_text("start: 1.0\n")

    def battery(chosen: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen,
             "tests/positions/test_battery.py", "tests/positions/test_paths.py"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip().splitlines()[-1]

    formula = "paper or dense or oracle"
    assert "1 failed" in battery("test_every_encoding_has_an_oracle and logarithmic")
    oracles = tmp_path / "tests/oracles/positions.py"
    own = python_block("SCORES")
    oracles.write_text(oracles.read_text() + own.replace("1 + i - j", "2 + i - j"))
    assert " failed" in battery(f"logarithmic and ({formula})")
    oracles.write_text(oracles.read_text() + own)
    passed = re.fullmatch(r"(\d+) passed, .*", battery("logarithmic"))
    assert passed and int(passed[1]) > 20


@pytest.mark.parametrize("command", [c for c in COMMANDS if "pipeline evaluate" in c])
def test_settings_of_tests_are_settings(command: str) -> None:
    """A run folder is looked for before its settings are read."""
    arguments = shlex.split(command)[5:]
    (config,) = load(ROOT / "configs" / "demo.yaml", ["sweep={}", *arguments], trains=False)
    assert (config.extension["name"] == "yarn") == ("extension=yarn" in command)


def test_every_config_in_the_readme_exists() -> None:
    for path in set(re.findall(r"configs/[\w/]+\.yaml", README)):
        assert (ROOT / path).is_file(), path
        load(ROOT / path, [])
