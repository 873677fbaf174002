"""Makes matches of rows that a search has found: from memory, or with what the file has of them."""

from __future__ import annotations

from lib._util.json import compact
from lib.vector.records import Match
from lib.vector.stores.sqlite.cache import FoundRows, Near, Stored
from lib.vector.stores.sqlite.rows import TableRows

_FOUND = "SELECT rid, text, meta FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"


class Matches:
    """Makes matches, and keeps texts and metadata of those found last."""

    def __init__(self, rows: TableRows, most_bytes: int) -> None:
        """Take the rows, and keep about so many bytes at most."""
        self._rows, self._found = rows, FoundRows(most_bytes)

    def clear(self) -> None:
        """Forget all that was found."""
        self._found.clear()

    def cached(self, near: Near, *, include_vectors: bool) -> list[Match] | None:
        """Return the records of rows, or None if one was not found before; never blocks."""
        contents = near.snapshot.contents
        beside: dict[int, Stored] = {}
        for row, _ in near.found:
            stored = self._found.get(contents, row)
            if stored is None:
                return None
            beside[row] = stored
        return self._made(near, beside, include_vectors=include_vectors)

    def read(self, near: Near, *, include_vectors: bool = False) -> list[Match]:
        """Return the records of rows; reads from the file what was not found before."""
        contents, beside, rest = near.snapshot.contents, dict[int, Stored](), dict[int, int]()
        for row, _ in near.found:
            stored = self._found.get(contents, row)
            if stored is None:
                rest[contents.rids[row]] = row
            else:
                beside[row] = stored
        if rest:
            for rid, text, meta in self._rows.select(_FOUND, compact(list(rest))):
                beside[rest[rid]] = text, meta
                self._found.put(contents, rest[rid], (text, meta))
        return self._made(near, beside, include_vectors=include_vectors)

    def _made(self, near: Near, beside: dict[int, Stored], *, include_vectors: bool) -> list[Match]:
        rows, made = near.snapshot.rows, list[Match]()
        for row, score in near.found:
            text, meta = beside[row]
            vector = rows.vectors[row].tolist() if include_vectors else None
            made.append(Match(rows.ids[row], score, text, self._rows.meta(meta), vector))
        return made
