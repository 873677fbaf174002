"""The files of a folder that an index holds, kept between runs in one small file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lib._util.files import write_atomically
from lib._util.json import canonical, digest
from lib.errors import LibError

_FORMAT: Final = "lib.ingest"
_VERSION: Final = 1
_LONGEST_ID: Final = 500
_PENDING: Final = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was last ingested.

    Attributes:
        digest: of its bytes; empty while the index may hold any of its chunks, or none.
        chunks: how many ids it may have taken, from 0 on.
    """

    digest: str
    chunks: int


@dataclass(slots=True)
class Manifest:
    """The files that an index holds, and how they were made into vectors.

    The index may hold less than an entry says, while the entry is pending, but never a chunk
    that no entry names: the file is written before the index is.

    Attributes:
        path: where it is kept; None forgets it after the run.
        settings: digest of what decides how files become chunks.
        fingerprint: of the fitted embedder; empty if there is none, or while it changes.
        files: entry by source.
    """

    path: Path | None = None
    settings: str = ""
    fingerprint: str = ""
    files: dict[str, Entry] = field(default_factory=dict[str, Entry])

    @classmethod
    def load(cls, path: Path | None) -> Manifest:
        """Return what the last run left; an empty manifest if there was none.

        Raises:
            LibError: the file is damaged, no manifest, or from another release.
        """
        if path is None or not path.exists():
            return cls(path)
        content = path.read_bytes()
        try:
            return cls(path, *_parsed(json.loads(content)))
        except (ValueError, KeyError, TypeError) as error:
            raise LibError(
                f"{path.name} is no ingest manifest of this release, or is damaged: "
                "delete it and the index, and ingest again"
            ) from error

    def save(self) -> None:
        """Write the file durably and as a whole."""
        if self.path is None:
            return
        files = {source: [entry.digest, entry.chunks] for source, entry in self.files.items()}
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "settings": self.settings,
            "fingerprint": self.fingerprint,
            "files": files,
        }
        write_atomically(self.path, canonical(content).encode())

    def expect(self, source: str, chunks: int) -> None:
        """Note that the index is about to hold other chunks of this source."""
        held = self.files.get(source, Entry(_PENDING, 0))
        self.files[source] = Entry(_PENDING, max(held.chunks, chunks))

    def ids(self, source: str) -> list[str]:
        """Return every id that the index may hold of this source."""
        entry = self.files.get(source)
        return [chunk_id(source, number) for number in range(entry.chunks)] if entry else []


def chunk_id(source: str, number: int) -> str:
    """Return the id of a chunk: the source, or its digest if it is very long, and the number."""
    name = source if len(source) <= _LONGEST_ID else digest(source)
    return f"{name}#{number}"


def _parsed(content: dict[str, Any]) -> tuple[str, str, dict[str, Entry]]:
    if (content["format"], content["version"]) != (_FORMAT, _VERSION):
        raise ValueError("another format")
    files = {source: Entry(*entry) for source, entry in content["files"].items()}
    return content["settings"], content["fingerprint"], files
