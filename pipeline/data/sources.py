"""Which files make up a corpus: one file, a folder, or the running Python's own sources."""

import hashlib
import stat
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DataError

EXTENSIONS = (".txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SourceFile:
    """One file of a corpus; `name` is its path relative to the corpus, used in messages."""

    name: str
    path: Path
    n_bytes: int


@dataclass(frozen=True)
class Excluded:
    """A file that the definition of the corpus leaves out, and why; the manifest lists it."""

    name: str
    reason: str


@dataclass(frozen=True)
class Source:
    """The files of a corpus in reading order. `name` is safe to use in a folder name."""

    name: str
    files: tuple[SourceFile, ...]
    excluded: tuple[Excluded, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of all files as they lie on disk (compressed files: compressed bytes)."""
        return sum(file.n_bytes for file in self.files)


def extension_of(name: str) -> str | None:
    """The member of `EXTENSIONS` that `name` ends in, or None. Case matters."""
    return max((e for e in EXTENSIONS if name.endswith(e)), key=len, default=None)


def find_source(source: str) -> Source:
    """List the files behind `data.source`: a file, a folder (recursive, sorted) or "stdlib".

    Raises DataError if the path is missing, holds no file, or holds anything that is not a regular
    file with a known extension. Files and folders whose names start with a dot are excluded.
    """
    if source == "stdlib":
        return _stdlib()
    path = Path(source)
    excluded: list[Excluded] = []
    try:
        if path.is_dir():
            files = tuple(_walk(path, "", (), excluded))
        else:
            files = (_regular_file(path, path.name),)
    except OSError as error:
        raise DataError(
            f"data.source = {source!r} cannot be read: {error.strerror}: {error.filename}; give an "
            f"existing file or folder, or 'stdlib'"
        ) from error
    if not files:
        raise DataError(
            f"data.source = {source!r} holds no file; give a folder with files ending in "
            f"{', '.join(EXTENSIONS)}"
        )
    stem = path.resolve().name
    stem = stem.removesuffix(extension_of(stem) or "")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in stem)
    return Source(name[:64] or "corpus", files, tuple(excluded))


def source_sha256(source: Source, progress: Callable[[int], object]) -> str:
    """sha256 over the kind, size and content of every file in order; names do not count.

    `progress` is called with the number of bytes read since its last call.
    """
    total = hashlib.sha256()
    for file in source.files:
        digest = hashlib.sha256()
        size = 0
        try:
            with file.path.open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
                    size += len(block)
                    progress(len(block))
        except OSError as error:
            raise DataError(f"{file.path}: cannot be read: {error.strerror}") from error
        total.update(f"{extension_of(file.name)} {size} {digest.hexdigest()}\n".encode())
    return total.hexdigest()


def _regular_file(path: Path, name: str) -> SourceFile:
    facts = path.stat()  # a missing file or a loop of links raises here, with the system's reason
    if not stat.S_ISREG(facts.st_mode):
        raise DataError(f"{path}: not a regular file; remove it from the corpus")
    if extension_of(name) is None:
        raise DataError(
            f"{path}: unknown extension; a corpus file ends in {', '.join(EXTENSIONS)}: rename it "
            f"or move it out of the corpus"
        )
    return SourceFile(name, path, facts.st_size)


def _walk(
    folder: Path, prefix: str, parents: tuple[Path, ...], excluded: list[Excluded]
) -> Iterator[SourceFile]:
    real = folder.resolve()
    if real in parents:
        raise DataError(f"{folder}: a link that leads back to {real}; remove it from the corpus")
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        name = prefix + path.name
        if path.name.startswith("."):
            excluded.append(Excluded(name, "hidden: the name starts with a dot"))
        elif path.is_dir():
            yield from _walk(path, name + "/", (*parents, real), excluded)
        else:
            yield _regular_file(path, name)


def _stdlib() -> Source:
    root = Path(sysconfig.get_paths()["stdlib"])
    files: list[SourceFile] = []
    excluded: list[Excluded] = []
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).parts):
        relative = path.relative_to(root)
        if relative.parts[0] in ("site-packages", "dist-packages") or not path.is_file():
            continue
        reason = _why_not_stdlib_text(path)
        if reason is None:
            files.append(SourceFile(relative.as_posix(), path, path.stat().st_size))
        else:
            excluded.append(Excluded(relative.as_posix(), reason))
    if not files:
        raise DataError(
            f"data.source = 'stdlib': {root} holds no .py file (this Python came without its "
            f"sources); use another Python or set data.source to a file or folder"
        )
    return Source("stdlib", tuple(files), tuple(excluded))


def _why_not_stdlib_text(path: Path) -> str | None:
    if path.name.startswith("_sysconfigdata"):
        return "generated when this Python was built: differs from machine to machine"
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 by design (byte offset {error.start})"
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return None
