"""Shared by tests of folders and their index: files, an index that can fail, and what it holds."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib.ingest import Index, IngestReport, ingest_folder
from lib.vector import Doc

GUIDE = "# Guide\n\nEngines run agents.\n\n## Install\n\nType make demo.\n"
NOTES = "Plain notes about vectors.\n"
NOTHING = IngestReport(added=0, changed=0, unchanged=0, removed=0, skipped=[], chunks=0, embedded=0)


class Crash(Exception):
    """The error of a test in place of a process's death."""


class Shelf:
    """An index without an embedder, which keeps documents and can fail at any call."""

    def __init__(self) -> None:
        self.docs: dict[str, Doc] = {}
        self.calls = 0
        self.crash_at = -1

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crash

    async def add(self, docs: Iterable[Doc]) -> None:
        for doc in docs:
            self._call()
            self.docs[doc.id] = doc

    async def get(self, ids: Iterable[str]) -> list[Doc]:
        return [self.docs[name] for name in ids if name in self.docs]

    async def delete(self, ids: Iterable[str]) -> None:
        for name in ids:
            self._call()
            self.docs.pop(name, None)


def write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content, "utf-8")


async def ingest(folder: Path, index: Index, **options: Any) -> IngestReport:
    return await ingest_folder(folder, index, **options)


def texts(shelf: Shelf) -> dict[str, str]:
    return {name: doc.text for name, doc in sorted(shelf.docs.items())}
