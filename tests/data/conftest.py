"""One small corpus and its prepared folder, made once for all tests of the data part."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.data.prepare import Prepared, prepare
from tests.data.corpus import ZOO, config_for, folder_of_text


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of_text(tmp_path_factory.mktemp("source") / "corpus")
    rows = [text for kind, text in ZOO.items() if kind != "one line"]
    lines = [json.dumps({"text": text}) + "\n" for text in rows]
    (folder / "zoo.jsonl").write_text("".join(lines * 2))
    (folder / ".hidden").write_text("x")
    return folder


@pytest.fixture(scope="session")
def prepared(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(config_for(corpus, tmp_path_factory.mktemp("prepared")))


@pytest.fixture
def copy(prepared: Prepared, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared.folder, tmp_path / "copy"))
