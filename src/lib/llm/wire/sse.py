"""Server-sent events from bytes, in whatever pieces they come.

Source: WHATWG HTML, "Server-sent events" (html.spec.whatwg.org, 2026-08). Lines end with LF or
CRLF. Two liberties, since servers take them: what stands before the end of the stream is an event
without its blank line, and fields beside `event` and `data` are kept by name (llama.cpp before
2025-09 wrote errors as `error: {…}`, ggml-org/llama.cpp#16104).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

END_OF_STREAM: Final = b"\n\n"
"""What to feed last: it completes an event that has no blank line."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its type, "" where none was given, its data, and other fields by name."""

    data: str = ""
    event: str = ""
    other: dict[str, str] = field(default_factory=dict[str, str])


class EventDecoder:
    """Takes bytes and gives events. It holds one unfinished event: bound what you feed it."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._fields: dict[str, list[str]] = {}
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield from self._line(b"".join([*self._rest, line]))
            self._rest.clear()
        self._rest.append(rest)

    def _line(self, raw: bytes) -> Iterator[ServerEvent]:
        if self._first:
            raw, self._first = raw.removeprefix(_BOM), False
        line = raw.removesuffix(b"\r").decode("utf-8", "replace")
        if line:
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return
        fields = {name: "\n".join(values) for name, values in self._fields.items() if name}
        self._fields.clear()
        if fields:
            yield ServerEvent(fields.pop("data", ""), fields.pop("event", ""), fields)
