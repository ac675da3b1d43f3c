"""Which files a corpus has, and their common hash."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from pipeline.data.sources import find_source, source_sha256
from pipeline.errors import DataError


def names(path: Path) -> list[str]:
    return [file.name for file in find_source(str(path)).files]


def sha256(path: Path) -> str:
    return source_sha256(find_source(str(path)), lambda _: None)


def test_a_folder_is_read_whole_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.jsonl", "a/b/c.parquet", "a.txt", "B.jsonl.gz", "é.jsonl.zst"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert names(tmp_path) == [
        "B.jsonl.gz",
        "a/b/c.parquet",
        "a/z.jsonl",
        "a.txt",
        "b.txt",
        "é.jsonl.zst",
    ]


def test_hidden_files_are_listed_as_excluded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("x")
    (tmp_path / ".hidden.txt").write_text("x")
    (tmp_path / "a.txt").write_text("x")
    source = find_source(str(tmp_path))
    assert [file.name for file in source.files] == ["a.txt"]
    assert [excluded.name for excluded in source.excluded] == [".git", ".hidden.txt"]


@pytest.mark.parametrize("name", ["notes.md", "a.TXT", "a.gz", "a.txt.gz", "a", "jsonl"])
def test_an_unknown_extension_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / name).write_text("x")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=rf"{name}: unknown extension.*\.jsonl\.zst"):
            find_source(str(path))


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.source = .*none\.txt.*No such file"):
        find_source(str(tmp_path / "none.txt"))


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file"):
        find_source(str(tmp_path))


def test_a_pipe_is_refused_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"a\.txt: not a regular file"):
        find_source(str(tmp_path))


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "linked").symlink_to(tmp_path / "real")
    assert names(corpus) == ["linked/a.txt"]
    (corpus / "up").symlink_to(corpus)
    with pytest.raises(DataError, match="up: a link that leads back"):
        find_source(str(corpus))
    (corpus / "up").unlink()
    (corpus / "self.txt").symlink_to(corpus / "self.txt")
    with pytest.raises(DataError, match=r"self\.txt"):
        find_source(str(corpus))


def test_the_hash_is_of_content_and_order_not_of_place(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    (one / "a.txt").write_text("ab")
    (one / "b.txt").write_text("c")
    before = sha256(one)
    shutil.copytree(one, tmp_path / "two")
    (tmp_path / "two" / "a.txt").rename(tmp_path / "two" / "aa.txt")
    assert sha256(tmp_path / "two") == before
    (tmp_path / "two" / "aa.txt").rename(tmp_path / "two" / "c.txt")
    assert sha256(tmp_path / "two") != before
    (one / "b.txt").write_text("d")
    assert sha256(one) != before
    (one / "a.txt").write_text("a")
    (one / "b.txt").write_text("bc")
    assert sha256(one) != before


def test_the_name_is_safe_for_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "my corpus.v1.jsonl.gz"
    path.write_text("")
    assert find_source(str(path)).name == "my_corpus_v1"


def test_stdlib_is_this_pythons_own_sources() -> None:
    source = find_source("stdlib")
    found = {file.name for file in source.files}
    assert {"json/decoder.py", "os.py", "asyncio/events.py"} <= found
    assert not any(name.startswith(("site-packages/", "dist-packages/")) for name in found)
    assert all(name.endswith(".py") for name in found)
    parts = [Path(file.name).parts for file in source.files]
    assert parts == sorted(parts)
    root = Path(sysconfig.get_paths()["stdlib"])
    for excluded in source.excluded:
        assert excluded.name not in found
        assert excluded.reason
        if "UTF-8" in excluded.reason:
            with pytest.raises(UnicodeDecodeError):
                (root / excluded.name).read_bytes().decode()
    assert any(excluded.name.startswith("_sysconfigdata") for excluded in source.excluded)
