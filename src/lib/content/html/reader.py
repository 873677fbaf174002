"""HTML to blocks: what is seen of a page, where it stands, and what stands around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lib.content.html import elements as names
from lib.content.html.blocks import DEFINITION, Block, Blocks, Inline, offsets_of
from lib.content.html.elements import ENDED_BY, FORMATTING, VOID
from lib.content.html.visibility import find_hidden_text
from lib.content.links import Links
from lib.content.markup import Kind, Token, attributes, tokens, unescaped

MAX_EVENTS: Final = 400_000
"""How many texts and tags of a page are read."""

MAX_BLOCKS: Final = 80_000
"""How many block elements of a page are read: they take longer than other tags."""

_beginning: Final = re.compile(r"<[a-z/!?]", re.IGNORECASE).search
_may_hide: Final = re.compile(r"hidden|popover", re.IGNORECASE).search
_ends_of_dropped: Final = re.compile(
    rf"</({'|'.join(sorted(names.DROPPED | names.NAVIGATION))})(?=[\s/>])", re.IGNORECASE
).finditer
_language: Final = re.compile(
    r"(?:^|\s)(?:language|lang|highlight-source|brush:)[-\s]?([\w+#-]{1,20})(?!\S)"
).search
_lines: Final = re.compile(r"[^\n]*\n|[^\n]+").findall
_number: Final = re.compile(r"\s*([0-9]{1,6})\s*", re.ASCII).fullmatch
_NO_ATTRIBUTES: Final[dict[str, str]] = {}


def read_blocks(
    source: str, *, url: str, max_events: int = MAX_EVENTS, max_blocks: int = MAX_BLOCKS
) -> Blocks:
    """Return the visible blocks of a page; what is not seen, scripts and comments are left out.

    Linear: every text and tag is handled once, and at most `max_events` of them, and no more than
    `max_blocks` elements that stand on their own.

    Args:
        source: HTML.
        url: where it came from, for its links.
        max_events: how many texts and tags are read.
        max_blocks: how many block elements are read.
    """
    reader, sight = _Reader(source, Links(url)), find_hidden_text(source)
    end_of_sight = len(source) if sight.end is None else sight.end
    for number, (kind, value, start, end) in enumerate(_tokens(source)):
        if number >= max_events or reader.opened > max_blocks or start >= end_of_sight:
            reader.page.cut = True
            break
        if kind == "text":
            if start not in sight.unseen:
                reader.text(value if end < len(source) else _complete(value))
        else:
            reader.tag(kind, value, source[start:end], start)
    return reader.finished()


def read_file_blocks(source: str) -> Blocks:
    """Return the visible blocks of a whole page, each with the source lines of its text.

    It is for files that an operator has chosen to index: there is no limit to their size,
    navigation is left out, and neither links nor code within a text are marked.

    Args:
        source: HTML, with line feeds as the only ends of lines.
    """
    reader, sight = _Reader(source, None), find_hidden_text(source)
    line, counted = 1, 0
    for kind, value, start, end in _tokens(source):
        if kind != "text":
            reader.tag(kind, value, source[start:end], start)
        elif start not in sight.unseen:
            line, counted = line + source.count("\n", counted, start), start
            text = value if end < len(source) else _complete(value)
            for number, part in enumerate(_lines(text)):
                reader.text(part, line + number)
    return reader.finished()


def _tokens(source: str) -> Iterator[Token]:
    return tokens(source, skipped=names.SKIPPED, raw=names.RAW)


def _complete(last: str) -> str:
    """Return the last text of a page without a tag or comment that does not end."""
    cut = _beginning(last)
    return last[: cut.start()] if cut else last


@dataclass(slots=True)
class _Frame:
    """An open block, with what it is put back to when it ends."""

    name: str
    hint: int
    blocks: int
    row: int
    cell: int
    header: bool
    counts: dict[str, int] | None = None


class _Reader:
    """Follows the tags; a stack holds the open blocks, inline elements are not kept."""

    def __init__(self, source: str, links: Links | None) -> None:
        self.page = Blocks()
        self.opened = 0
        self._last_ends = {end[1].lower(): end.start() for end in _ends_of_dropped(source)}
        self._links = links  # None: neither links nor code are marked, and no navigation is read
        self._dropped = names.DROPPED if links else names.DROPPED | names.NAVIGATION
        self._based = False
        self._inline = Inline()
        self._frames: list[_Frame] = []
        self._numbers = [0]  # containers of the page and of the outermost frames
        self._counts: dict[str, int] = {}  # open blocks that an end tag here can end
        self._tables: dict[str, int] = {}  # open parts of tables
        self._hidden = Hidden()
        self._title: list[str] = []
        self._in_title = self._titled = False
        self._code: list[str] | None = None
        self._code_lines: list[tuple[int, int]] = []  # the number of a part, and its source line
        self._language = ""
        self._level = self._quotes = 0
        self._lists: list[int] = []  # the number of the next item, or -1
        self._marker = ""
        self._row = self._cell = self._last_row = self._last_cell = 0
        self._header = False
        self._inline_opens: dict[str, Callable[[dict[str, str]], None]] = {
            "a": self._open_link,
            "base": self._rebase,
            "br": self._break_line,
            "code": self._open_code,
            "hr": self._rule,
            "title": self._open_title,
        }

    # -- tokens --------------------------------------------------------------------------------

    def text(self, text: str, line: int = 0) -> None:
        if self._hidden:
            return
        if self._in_title:
            if not self._titled:  # no other title is shown anywhere
                self._title.append(text)
        elif self._code is not None:
            if line:
                self._code_lines.append((len(self._code), line))
            self._code.append(unescaped(text))
        else:
            self._inline.add(text, line)

    def tag(self, kind: Kind, name: str, tag: str, start: int) -> None:
        if kind == "close":
            self.close(name)
        else:
            self.open(name, tag, start)

    def open(self, name: str, tag: str, start: int) -> None:
        self._in_title = False
        if self._hidden and self._hidden.opens(name, tag):
            return
        found: dict[str, str] | None = _NO_ATTRIBUTES
        block = name in names.BLOCKS
        if len(tag) > len(name) + 2 and (block or name in _WITH_ATTRIBUTES or _may_hide(tag)):
            found = attributes(tag, limit=names.MAX_ATTRIBUTES)
        if block:
            self._end_implied(name)
        if self._drops(name, tag, start) or _hides(name, found):
            self._hidden.enter(name)
        elif block:
            self._open_block(name, found or _NO_ATTRIBUTES)
        elif name in self._inline_opens:
            self._inline_opens[name](found or _NO_ATTRIBUTES)

    def _drops(self, name: str, tag: str, start: int) -> bool:
        """Return True if an element is one that is not read; one that does not end is read."""
        if name not in self._dropped or (name in {"svg", "math"} and tag.endswith("/>")):
            return False
        return name == "template" or self._last_ends.get(name, -1) > start

    def close(self, name: str) -> None:
        self._in_title = False
        counts = self._tables if name in names.TABLE_PARTS else self._counts
        around = bool(counts.get(name))
        if self._hidden and self._hidden.closes(name, around=around):
            return
        if around:
            while self._end_block() != name:
                pass
        elif name == "a":
            self._inline.close_link()
        elif name == "code":
            self._inline.close_code()

    def finished(self) -> Blocks:
        """Return the page, once all of it is taken."""
        while self._frames:
            self._end_block()
        self._break()
        self.page.title = " ".join(unescaped("".join(self._title)).split())
        return self.page

    # -- inline elements -----------------------------------------------------------------------

    def _open_link(self, found: dict[str, str]) -> None:
        if self._code is None:
            links = self._links
            self._inline.open_link(links and links.absolute(found.get("href", "")))

    def _open_code(self, found: dict[str, str]) -> None:
        if self._code is None:
            if self._links:
                self._inline.open_code()
        else:
            self._language = self._language or _language_of(found)

    def _open_title(self, _: dict[str, str]) -> None:
        self._in_title, self._titled = True, bool(self._title)

    def _rebase(self, found: dict[str, str]) -> None:
        if self._links and not self._based and "href" in found:
            self._based = True
            self._links.rebase(found["href"])

    def _break_line(self, _: dict[str, str]) -> None:
        if self._code is None:
            self._inline.break_line()
        else:
            self._code.append("\n")

    def _rule(self, _: dict[str, str]) -> None:
        self._break()

    # -- blocks --------------------------------------------------------------------------------

    def _end_implied(self, name: str) -> None:
        while self._frames and name in names.ENDED_BY.get(self._frames[-1].name, ()):
            self._end_block()

    def _open_block(self, name: str, found: dict[str, str]) -> None:
        self._break()
        self.opened += 1
        frame = _Frame(
            name,
            names.hint(name, found),
            len(self.page.blocks),
            self._row,
            self._cell,
            self._header,
        )
        self._frames.append(frame)
        counts = self._tables if name in names.TABLE_PARTS else self._counts
        counts[name] = counts.get(name, 0) + 1
        if name in names.TABLE_PARTS:
            self._open_table_part(name, frame)
        elif name in names.LISTS:
            start = _number(found.get("start", "1"))
            self._lists.append((int(start[1]) if start else 1) if name == "ol" else -1)
        elif name == "li":
            self._marker = self._next_marker()
        elif name == "dd":
            self._marker = DEFINITION
        elif name == "pre":
            self._end_code()
            self._code, self._language = [], _language_of(found)
        elif name == "blockquote":
            self._quotes += 1
        elif name in names.HEADINGS:
            self._level = names.HEADINGS[name]

    def _open_table_part(self, name: str, frame: _Frame) -> None:
        if name == "table":
            self._row = self._cell = 0
            self._header = False
        elif name == "tr" or (name in names.CELLS and not self._row):
            self._last_row += 1
            self._row, self._cell = self._last_row, 0
        if name in names.CELLS:
            self._last_cell += 1
            self._cell, self._header = self._last_cell, name == "th"
            frame.counts, self._counts = self._counts, {}

    def _next_marker(self) -> str:
        if not self._lists or self._lists[-1] < 0:
            return "- "
        self._lists[-1] += 1
        return f"{self._lists[-1] - 1}. "

    def _end_block(self) -> str:
        """End the innermost block, and return its name."""
        self._break()
        frame = self._frames[-1]
        name = frame.name
        if frame.counts is not None:
            self._counts = frame.counts
            if len(self.page.blocks) == frame.blocks:
                self._add("", 0, 0)  # so that cells stay below each other
        counts = self._tables if name in names.TABLE_PARTS else self._counts
        counts[name] -= 1
        self._frames.pop()
        del self._numbers[len(self._frames) + 1 :]
        self._row, self._cell, self._header = frame.row, frame.cell, frame.header
        if name in names.LISTS:
            self._lists.pop()
        elif name in {"li", "dd"}:
            self._marker = ""
        elif name == "pre":
            self._end_code()
        elif name == "blockquote":
            self._quotes -= 1
        elif name in names.HEADINGS:
            self._level = 0
        return name

    def _break(self) -> None:
        """End the text before a tag that stands on its own."""
        if self._code is not None:
            if self._code and not self._code[-1].endswith("\n"):
                self._code.append("\n")
        elif not self._inline.empty:
            self._add(*self._inline.take())
        else:
            self._inline.forget_gap()

    def _end_code(self) -> None:
        if self._code is None:
            return
        written = "".join(self._code).replace("\r\n", "\n")
        text = written.strip("\n").rstrip()
        leading = len(written) - len(written.lstrip("\n"))
        lines = [
            (max(offset - leading, 0), line)
            for offset, line in offsets_of(self._code, self._code_lines)
        ]
        self._code, self._code_lines = None, []
        if text:
            self._add(text, len(text), 0, lines, code=True)

    def _add(
        self,
        text: str,
        size: int,
        linked: int,
        lines: Sequence[tuple[int, int]] = (),
        *,
        code: bool = False,
    ) -> None:
        self.page.blocks.append(
            Block(
                container=self._container(),
                kind="code" if code else "heading" if self._level else "text",
                text=text,
                size=size,
                linked=linked,
                level=self._level,
                quotes=self._quotes,
                depth=len(self._lists),
                marker=self._marker,
                row=self._row,
                cell=self._cell,
                header=self._header,
                language=self._language if code else "",
                lines=lines,
            )
        )
        self._marker = ""

    def _container(self) -> int:
        """Return the number of the innermost open block, which gets one only now."""
        page, numbers = self.page, self._numbers
        for frame in self._frames[len(numbers) - 1 :]:
            page.parents.append(numbers[-1])
            page.hints.append(frame.hint)
            page.names.append(frame.name)
            numbers.append(len(page.parents) - 1)
        return numbers[-1]


_WITH_ATTRIBUTES: Final = frozenset({"a", "base", "code", "dialog"})


def _hides(name: str, found: dict[str, str] | None) -> bool:
    if name in {"html", "body"} or name in names.VOID:
        return False  # scripts show what is hidden there
    if name == "dialog" and "open" not in (found or ()):
        return True
    return found is not _NO_ATTRIBUTES and names.is_hidden(found)


def _language_of(found: dict[str, str]) -> str:
    language = _language(found.get("class", "")[:500])
    return language[1] if language else ""


class Hidden:
    """The elements that are open from the outermost hidden one on; true while there is one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: list[str] = []
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def enter(self, name: str) -> None:
        """Begin at this element."""
        self._open = [name]
        self._counts = {name: 1}

    def opens(self, name: str, tag: str) -> bool:
        """Take a start tag; say whether it is hidden, too, and not the end of what is."""
        root = self._open[0]
        if len(self._open) == 1 and name in ENDED_BY.get(root, ()):
            self._leave()
            return False
        itself_ended = root in {"svg", "math"} and tag.endswith("/>")
        if name not in VOID and not itself_ended:
            self._open.append(name)
            self._counts[name] = self._counts.get(name, 0) + 1
        return True

    def closes(self, name: str, *, around: bool) -> bool:
        """Take an end tag; say whether it ends nothing outside.

        Args:
            name: of the element.
            around: whether such an element is open around the hidden one.
        """
        if self._counts.get(name):
            ended = ""
            while ended != name:
                ended = self._open.pop()
                self._counts[ended] -= 1
            return True
        if around and self._open[0] not in FORMATTING:
            self._leave()
            return False
        return True

    def _leave(self) -> None:
        self._open, self._counts = [], {}
