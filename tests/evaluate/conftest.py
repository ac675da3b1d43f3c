"""A small prepared corpus, for tests of tasks in a real vocabulary."""

import pytest

from pipeline.data.prepare import Prepared, prepare
from tests.data.corpus import config_for, folder_of_text


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Prose in a vocabulary of 300 tokens."""
    source = folder_of_text(tmp_path_factory.mktemp("source") / "corpus")
    return prepare(config_for(source, tmp_path_factory.mktemp("prepared")))
