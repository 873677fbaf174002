"""The tools of a model over files: `read_file` and `list_files`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import Field

from lib._util.json import canonical
from lib._util.own_threads import OwnThreads
from lib.content.hygiene import clean
from lib.tools.builtin.files.access import FileAccess, at_least_one
from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.listing import MAX_ENTRIES
from lib.tools.definition import Tool, ToolAnnotations
from lib.tools.function import tool

MAX_CHARS: Final = 20_000
"""How much text one call of `read_file` gives; the rest is a matter of `offset`."""
LISTED: Final = 200
"""How many entries one call of `list_files` gives unless it asks for another number."""

_ANNOTATIONS: Final = ToolAnnotations(read_only=True, idempotent=True)
_TIMEOUT_S: Final = 30.0
_THREADS: Final = OwnThreads("lib-files", 8)
# What JSON makes of one character at most is `\uXXXX`; the engine must never cut the tail off.
_JSON_CHARS: Final = 6
_OVERHEAD_CHARS: Final = 30_000

_PATH: Final = "relative to the root, names separated by '/'"
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NEXT: Final = {"type": ["integer", "null"], "description": "offset of the next call, if any"}
_FLAG: Final = {"type": "boolean"}
_READ_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "path": _TEXT,
        "text": _TEXT,
        "offset": _COUNT,
        "lines": _COUNT,
        "next_offset": _NEXT,
        "truncated": _FLAG,
        "size": _COUNT,
        "encoding": _TEXT,
        "replaced": _COUNT,
        "next_column": {
            **_COUNT,
            "description": "only where a line was cut: with the same offset, column of its rest",
        },
    },
    "required": [
        "path",
        "text",
        "offset",
        "lines",
        "next_offset",
        "truncated",
        "size",
        "encoding",
        "replaced",
    ],
    "additionalProperties": False,
}
_ENTRY_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "type": {"enum": ["file", "directory", "link", "other"]},
        "size": {"type": ["integer", "null"]},
        "escaped": {"type": "boolean", "description": "true: no call can ask for this name"},
    },
    "required": ["name", "type", "size"],
    "additionalProperties": False,
}
_LIST_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "path": _TEXT,
        "entries": {"type": "array", "items": _ENTRY_SCHEMA},
        "offset": _COUNT,
        "next_offset": _NEXT,
        "truncated": _FLAG,
    },
    "required": ["path", "entries", "offset", "next_offset", "truncated"],
    "additionalProperties": False,
}


def read_file_tool(
    root: str | Path | FileAccess, *, name: str = "read_file", max_chars: int = MAX_CHARS
) -> Tool:
    """Return a tool that reads text files below a directory.

    It returns what `FileAccess.read` does, of at most `max_chars` bytes of the file and cleaned of
    invisible characters. Files are read in a thread; a cancelled call stops there, too.

    Args:
        root: the directory, or an access with settings of its own.
        name: how the model calls it.
        max_chars: how much text one call gives at most.

    Raises:
        OSError: the directory does not exist, or is none.
        TypeError: `max_chars` is no whole number.
        ValueError: the name is none that a model can call, or `max_chars` is below 1.
    """
    access = _access(root)
    at_least_one("max_chars", max_chars)

    async def read_file(
        path: Annotated[str, Field(description=f"the file, {_PATH}")],
        offset: Annotated[
            int, Field(ge=0, strict=True, description="the first line, counted from 0")
        ] = 0,
        column: Annotated[
            int,
            Field(
                ge=0,
                strict=True,
                description="how many bytes of that line to skip: next_column of the call that "
                "has cut it",
            ),
        ] = 0,
        limit: Annotated[
            int | None,
            Field(ge=1, strict=True, description="how many lines; null for as many as fit"),
        ] = None,
    ) -> dict[str, object]:
        def work(budget: Budget) -> dict[str, object]:
            page = access.read_within(
                path,
                offset=offset,
                limit=limit,
                column=column,
                max_bytes=max_chars,
                budget=budget,
            )
            return {**page, "text": clean(str(page["text"]))}

        return await _in_thread(work)

    read_file.__doc__ = (
        "Read lines of a text file. When the result says truncated, call again with its "
        "next_offset; when it has next_column, a line was cut: its rest is there with the same "
        "offset and that column. Hidden files and files of keys or credentials are not shared."
    )
    return tool(
        name=name,
        effects="none",
        timeout_s=_TIMEOUT_S,
        annotations=_ANNOTATIONS,
        output_schema=_READ_SCHEMA,
        untrusted_output=True,
        max_output_chars=_JSON_CHARS * max_chars + _OVERHEAD_CHARS,
    )(read_file)


def list_files_tool(root: str | Path | FileAccess, *, name: str = "list_files") -> Tool:
    """Return a tool that lists directories below a directory.

    It returns what `FileAccess.list` does, 200 entries unless the model asks for more.

    Args:
        root: the directory, or an access with settings of its own.
        name: how the model calls it.

    Raises:
        OSError: the directory does not exist, or is none.
        ValueError: the name is none that a model can call.
    """
    access = _access(root)

    async def list_files(
        path: Annotated[str, Field(description=f"the directory, {_PATH}; '.' is the root")] = ".",
        offset: Annotated[
            int, Field(ge=0, strict=True, description="how many entries to leave out at the start")
        ] = 0,
        limit: Annotated[
            int, Field(ge=1, le=MAX_ENTRIES, strict=True, description="how many entries")
        ] = LISTED,
    ) -> dict[str, object]:
        def work(budget: Budget) -> dict[str, object]:
            return _fitting(access.list_within(path, offset=offset, limit=limit, budget=budget))

        return await _in_thread(work)

    list_files.__doc__ = (
        "List the names in a directory, with type and size. When the result says truncated, call "
        "again with its next_offset. Hidden files and files of keys or credentials are left out."
    )
    return tool(
        name=name,
        effects="none",
        timeout_s=_TIMEOUT_S,
        annotations=_ANNOTATIONS,
        output_schema=_LIST_SCHEMA,
        untrusted_output=True,
        max_output_chars=MAX_CHARS + _OVERHEAD_CHARS,
    )(list_files)


def _access(root: str | Path | FileAccess) -> FileAccess:
    return root if isinstance(root, FileAccess) else FileAccess(Path(root))


def _fitting(listing: dict[str, object]) -> dict[str, object]:
    """Return the listing with as many of its entries as are shown in `MAX_CHARS` characters."""
    entries = cast("list[dict[str, object]]", listing["entries"])
    chars = 0
    for count, entry in enumerate(entries):
        chars += len(canonical(entry))
        if chars > MAX_CHARS:
            following = cast("int", listing["offset"]) + count
            cut = {"entries": entries[:count], "next_offset": following, "truncated": True}
            return {**listing, **cut}
    return listing


async def _in_thread(work: Callable[[Budget], dict[str, object]]) -> dict[str, object]:
    """Return what the work does in a thread, which is cancelled when its caller is.

    The threads read files and nothing else: one that hangs holds up no other kind of work.
    """
    budget = Budget()
    try:
        return await _THREADS.run(partial(work, budget))
    finally:
        budget.cancel()
