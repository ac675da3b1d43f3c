"""Nothing in the project belongs to one machine."""

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, project_files

# Written so that no pattern matches its own source.
FOREIGN = {
    # "someone" is the user of the examples
    "path of one machine": r"[/](work|root)[/]\w|[/](home|Users)[/](?!someone\b)\w"
    r"|[/]opt[/](pypi|wheels)",
    "host of a package registry": r"pypi[.]org|pythonhosted[.]org|download[.]pytorch[.]org"
    r"|registry[.]npmjs|deb[.]debian|archive[.]ubuntu|conda[.]anaconda|ghcr[.]io|nvcr[.]io",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names_a(what: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in project_files()
        for number, line in enumerate(_text(ROOT / path), start=1)
        if re.search(FOREIGN[what], line)
    ]
    assert not found, "\n".join(found)


def _text(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
