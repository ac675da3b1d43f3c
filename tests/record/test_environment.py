import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pipeline.record import environment as module
from pipeline.record.environment import environment


def test_it_names_versions_and_machine() -> None:
    found = environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    for package in ("torch", "deepspeed", "lightning", "wandb", "sentencepiece"):
        assert found["packages"][package] == metadata.version(package)
    assert found["cpu"]
    assert found["platform"]
    assert found["cores"] >= 1
    assert json.loads(json.dumps(found)) == found


def test_it_imports_none_of_the_packages() -> None:
    code = (
        "import sys; from pipeline.record.environment import environment; environment()\n"
        "print({'torch', 'deepspeed', 'lightning', 'wandb', 'sentencepiece'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_package_that_is_not_installed_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no-such-package",))
    assert environment()["packages"] == {"no-such-package": None}


def test_the_commit_is_that_of_the_source_and_says_if_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "pipeline" / "record" / "x.py"))
    assert environment()["git"] is None
    _git(tmp_path, "init", "-q")
    assert environment()["git"] is None
    (tmp_path / "file").write_text("1")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    clean = environment()["git"]
    assert len(clean["commit"]) == 40
    assert not clean["changed"]
    (tmp_path / "file").write_text("2")
    assert environment()["git"] == {**clean, "changed": True}


def test_the_commit_of_a_repository_around_an_installed_copy_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "pipeline" / "record"
    installed.mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(installed / "x.py"))
    _git(tmp_path, "init", "-q")
    _git(
        tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"
    )
    assert environment()["git"] is None


def test_nothing_of_the_environment_variables_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "very-secret")
    assert "very-secret" not in json.dumps(environment())


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)
