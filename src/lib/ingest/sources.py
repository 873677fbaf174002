"""The files of a folder as sources of chunks. Everything here blocks: call it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lib.ingest.files import (
    READERS,
    Content,
    Listing,
    Unreadable,
    list_folder,
    read_file,
    suffix_of,
)
from lib.ingest.manifest import chunk_id
from lib.ingest.readers import read_plain
from lib.ingest.split import Splitter
from lib.vector.records import Doc

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chunked:
    """A file that has been read and cut."""

    source: str
    digest: str
    docs: list[Doc]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, read with one set of settings; a source is a relative path behind the prefix."""

    root: Path
    prefix: str
    splitter: Splitter
    max_bytes: int

    def list(self, suffixes: Collection[str]) -> Listing:
        """Return what stands in the folder, as relative paths."""
        return list_folder(self.root, suffixes)

    def digest(self, source: str) -> str:
        """Return the digest of a file that can be read as text."""
        return self._read(source).digest

    def chunks(self, source: str) -> Chunked:
        """Return a file as documents for an index."""
        content = self._read(source)
        document = READERS.get(suffix_of(source), read_plain)(content.text)
        whole = {"source": source, "title": document.title or Path(source).stem}
        if content.encoding != "utf-8":
            whole["encoding"] = content.encoding
        docs = [
            Doc(
                chunk_id(source, number),
                chunk.text,
                whole
                | {"line": chunk.line, "end_line": chunk.end_line}
                | ({"heading": chunk.heading} if chunk.heading else {}),
            )
            for number, chunk in enumerate(self.splitter.split(document))
        ]
        return Chunked(source, content.digest, docs)

    def _read(self, source: str) -> Content:
        return read_file(self.root / source.removeprefix(self.prefix), self.max_bytes)


def attempted(work: Callable[[str], T], sources: Iterable[str]) -> list[tuple[str, T | Unreadable]]:
    """Return each source with what the work gives for it, or with why it cannot be read."""
    return [(source, _attempt(work, source)) for source in sources]


def _attempt(work: Callable[[str], T], source: str) -> T | Unreadable:
    try:
        return work(source)
    except Unreadable as reason:
        return reason
