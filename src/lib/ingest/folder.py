"""A folder and an index, kept in step: what changed is ingested, what is gone is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from os import PathLike
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from lib._util.json import canonical, digest
from lib.ingest.files import (
    READERS,
    Content,
    Listing,
    Unreadable,
    list_folder,
    read_file,
    suffix_of,
)
from lib.ingest.manifest import Entry, Manifest, chunk_id
from lib.ingest.readers import read_plain
from lib.ingest.split import Splitter
from lib.vector.records import Doc

Progress: TypeAlias = Callable[[int, int, str], None]
T = TypeVar("T")

_CHUNKING: Final = 2  # to be raised when the same file gives other chunks
_FILES_AT_ONCE: Final = 32
_IDS_AT_ONCE: Final = 500
_DEFAULT_SPLITTER: Final = Splitter()


class Index(Protocol):
    """The methods of an index that ingestion needs; `lib.vector.EmbeddingIndex` is one."""

    async def add(self, docs: Iterable[Doc]) -> None:
        """Store the documents, each replacing what its id held."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Doc]:
        """Return the documents of these ids; unknown ones are left out."""
        ...

    async def delete(self, ids: Sequence[str]) -> object:
        """Forget the documents of these ids; unknown ones are ignored."""
        ...


class FittedEmbedder(Protocol):
    """An embedder that learns from the documents; `lib.vector.LSAEmbedder` is one."""

    @property
    def fingerprint(self) -> str:
        """The identity of the space that it embeds into; empty before the first fit."""
        ...

    async def fit(self, texts: Sequence[str]) -> None:
        """Learn from these texts, which gives another space."""
        ...


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of a run.

    Attributes:
        added: files that are new.
        changed: files whose bytes are others than in the last run.
        unchanged: files whose bytes are the same.
        removed: files of the last run that are gone, or can no longer be read as text.
        skipped: path and reason of each file or folder that was left out.
        chunks: how many chunks of the folder the index holds now.
        embedded: how many of them were embedded in this run.
    """

    added: int
    changed: int
    unchanged: int
    removed: int
    skipped: list[tuple[str, str]]
    chunks: int
    embedded: int


async def ingest_folder(
    path: str | PathLike[str],
    index: Index,
    *,
    manifest: str | PathLike[str] | None = None,
    fit: FittedEmbedder | None = None,
    prefix: str = "",
    splitter: Splitter = _DEFAULT_SPLITTER,
    suffixes: Collection[str] = tuple(READERS),
    max_bytes: int = 10_000_000,
    on_progress: Progress | None = None,
) -> IngestReport:
    """Bring the index in step with the text, Markdown and HTML files of a folder.

    Each chunk is a `Doc` with an id that depends on its file and place alone, and the metadata
    `source` (relative path), `line` and `end_line` (from 1), `title`, `heading` (where there is
    one) and `encoding` (where it is not UTF-8). Interrupted anywhere, the next run goes on.

    Args:
        path: the folder; symbolic links in it are not followed.
        index: where the chunks go.
        manifest: the file that remembers what the index holds, for this folder and index alone;
            None ingests everything and cannot know what has been removed.
        fit: the index's embedder, if it learns from the documents: after any change it is fitted
            on all chunks, and all are embedded again. Save it after this call.
        prefix: stands before each relative path in `source` and in ids, so that several folders
            can share an index.
        splitter: how documents are cut.
        suffixes: which files are read; an unknown suffix is plain text.
        max_bytes: larger files are skipped.
        on_progress: called with the number of files done, their total, and the one just done.

    Raises:
        OSError: the folder is missing or is none, or the manifest cannot be written.
        LibError: the manifest is damaged, or from another release.
    """
    chosen = Path(manifest) if manifest is not None else None
    run = _Run(
        folder=Folder(Path(path), prefix, splitter, max_bytes),
        index=index,
        manifest=await asyncio.to_thread(Manifest.load, chosen),
        on_progress=on_progress or _silent,
    )
    await run.survey(suffixes)
    await run.forget_removed()
    return await run.ingest(digest(canonical([_CHUNKING, asdict(splitter)])), fit)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run over a folder.

    Attributes:
        digests: of the files that can be read now, by source, sorted.
        before: the manifest's entries when the run began.
        removed: sources of the last run that are gone.
    """

    folder: Folder
    index: Index
    manifest: Manifest
    on_progress: Progress
    digests: dict[str, str] = field(default_factory=dict[str, str])
    before: dict[str, Entry] = field(default_factory=dict[str, Entry])
    removed: list[str] = field(default_factory=list[str])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def survey(self, suffixes: Collection[str]) -> None:
        """Find out what there is, and what of the last run is not there any more."""
        listing = await asyncio.to_thread(self.folder.list, suffixes)
        self.before = dict(self.manifest.files)
        prefix = self.folder.prefix
        self.skipped.extend((prefix + path, reason) for path, reason in listing.skipped)
        unknown: set[str] = set()
        sources = [prefix + path for path in listing.files]
        async for source, found in _read(self.folder.digest, sources):
            if isinstance(found, str):
                self.digests[source] = found
                continue
            self.skipped.append((source, found.reason))
            if not found.gone:
                unknown.add(source)
        unlisted = tuple(f"{prefix}{path}/" if path else prefix for path in listing.unlisted)
        self.removed = [
            source
            for source in self.before
            if source not in self.digests
            and source not in unknown
            and not source.startswith(unlisted)
        ]

    async def forget_removed(self) -> None:
        """Take what is gone out of the index, then out of the manifest."""
        for source in self.removed:
            await self._delete(self.manifest.ids(source))
            del self.manifest.files[source]

    async def ingest(self, settings: str, fit: FittedEmbedder | None) -> IngestReport:
        """Put what is new, changed or lost into the index; all, where vectors no longer fit."""
        todo = await self._todo()
        stale = self.manifest.settings != settings
        stale = stale or self.manifest.fingerprint != (fit.fingerprint if fit else "")
        if stale or (fit and (todo or self.removed)):
            todo = list(self.digests)
            if fit:
                await self._fit(fit)
            self.manifest.settings = self.manifest.fingerprint = ""
        embedded = await self._embed(todo)
        self.manifest.settings = settings
        self.manifest.fingerprint = fit.fingerprint if fit else ""
        await asyncio.to_thread(self.manifest.save)
        return self._report(embedded)

    async def _todo(self) -> list[str]:
        """Return the sources that are new, changed, or not in the index as they should be."""
        same = [source for source, found in self.digests.items() if found == self._digest(source)]
        last_ids = {ids[-1]: source for source in same if (ids := self.manifest.ids(source))}
        lost = set(last_ids.values())
        for ids in _batches(list(last_ids), _IDS_AT_ONCE):
            lost -= {last_ids[doc.id] for doc in await self.index.get(ids)}
        kept = set(same) - lost
        return [source for source in self.digests if source not in kept]

    async def _fit(self, fit: FittedEmbedder) -> None:
        texts: list[str] = []
        async for _, found in _read(self.folder.chunks, self.digests):
            if isinstance(found, Chunked):
                texts.extend(doc.text for doc in found.docs)
        if texts:
            await fit.fit(texts)

    async def _embed(self, todo: list[str]) -> int:
        """Replace the chunks of these sources and return how many there are."""
        progress, waiting = self._progress(), set(todo)
        for source in self.digests:
            if source not in waiting:
                progress(source)
        embedded = 0
        for group in _batches(todo, _FILES_AT_ONCE):
            found = await asyncio.to_thread(attempted, self.folder.chunks, group)
            embedded += await self._replace(
                [file for _, file in found if isinstance(file, Chunked)]
            )
            for source, file in found:
                if isinstance(file, Unreadable):  # since the survey
                    self.skipped.append((source, file.reason))
                progress(source)
        return embedded

    async def _replace(self, files: list[Chunked]) -> int:
        for file in files:
            self.manifest.expect(file.source, len(file.docs))
        await asyncio.to_thread(self.manifest.save)
        await self._delete([name for file in files for name in self.manifest.ids(file.source)])
        docs = [doc for file in files for doc in file.docs]
        await self.index.add(docs)
        for file in files:
            self.manifest.files[file.source] = Entry(file.digest, len(file.docs))
        return len(docs)

    async def _delete(self, ids: list[str]) -> None:
        for some in _batches(ids, _IDS_AT_ONCE):
            await self.index.delete(some)

    def _progress(self) -> Callable[[str], None]:
        done = count(1)
        return lambda source: self.on_progress(next(done), len(self.digests), source)

    def _digest(self, source: str) -> str | None:
        entry = self.before.get(source)
        return entry.digest if entry else None

    def _report(self, embedded: int) -> IngestReport:
        remaining = self.before.keys() & self.digests.keys()
        unchanged = sum(self.before[source].digest == self.digests[source] for source in remaining)
        return IngestReport(
            added=len(self.digests) - len(remaining),
            changed=len(remaining) - unchanged,
            unchanged=unchanged,
            removed=len(self.removed),
            skipped=sorted(self.skipped),
            chunks=sum(entry.chunks for entry in self.manifest.files.values()),
            embedded=embedded,
        )


async def _read(
    work: Callable[[str], T], sources: Iterable[str]
) -> AsyncIterator[tuple[str, T | Unreadable]]:
    for group in _batches(sources, _FILES_AT_ONCE):
        for pair in await asyncio.to_thread(attempted, work, group):
            yield pair


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _silent(done: int, total: int, source: str) -> None:
    pass


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
