"""Lists the files of a folder and reads their text: of HTML, what is seen, without navigation."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lib.content.charset import decode_file
from lib.content.html.blocks import Block
from lib.content.html.markdown import MAX_CELL, is_close
from lib.content.html.reader import read_file_blocks
from lib.ingest.document import Document, Heading, Reader
from lib.ingest.readers import read_markdown, read_plain, read_rst


def read_html(text: str) -> Document:
    """Return what a reader of the page would see, without scripts, styles and navigation.

    Paragraphs are separated by an empty line, items and rows by a line feed; `pre` keeps its white
    space and stays whole. The title is that of the head, else the first `h1`. Markup errors are
    read as they come.
    """
    page = read_file_blocks(text)
    parts: list[str] = []
    headings: list[Heading] = []
    code: list[tuple[int, int]] = []
    offsets, lines = [0], [1]
    length = 0
    last: Block | None = None
    for block in page.blocks:
        if not block.text:  # an empty cell
            continue
        gap = "" if last is None else _gap(last, block)
        start = length + len(gap)
        length = start + len(block.text)
        parts += gap, block.text
        for offset, line in block.lines:
            if line != lines[-1]:
                offsets.append(start + offset)
                lines.append(line)
        if block.kind == "heading":
            name = " ".join(block.text.split())
            headings.append(Heading(start=start, end=length, level=block.level, text=name))
        elif block.kind == "code":
            code.append((start, length))
        last = block
    first = next((heading.text for heading in headings if heading.level == 1), "")
    return Document(
        text="".join(parts),
        title=page.title or first,
        headings=headings,
        blocks=code,
        offsets=offsets,
        lines=lines,
    )


def _gap(last: Block, block: Block) -> str:
    """Return the white space between two blocks."""
    if last.row and last.row == block.row and last.cell != block.cell:
        return " " if max(last.size, block.size) <= MAX_CELL else "\n\n"
    return "\n" if is_close(last, block) else "\n\n"


READERS: Final[Mapping[str, Reader]] = {
    ".htm": read_html,
    ".html": read_html,
    ".markdown": read_markdown,
    ".md": read_markdown,
    ".rst": read_rst,
    ".text": read_plain,
    ".txt": read_plain,
    ".xhtml": read_html,
}
"""The reader of each suffix, in lower case."""

_GENERATED: Final = frozenset({"__pycache__", "CVS", "node_modules", "site-packages", "venv"})
_control = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f]").search


class Unreadable(Exception):
    """A file gives no text; the message says why. `gone` if nothing of it may stay indexed."""

    def __init__(self, reason: str, *, gone: bool = True) -> None:
        self.reason: str = reason
        self.gone: bool = gone
        super().__init__(reason)


@dataclass(slots=True)
class Listing:
    """The files of a folder.

    Attributes:
        files: relative POSIX paths of the files to read, sorted.
        skipped: relative path and reason of what was left out, and would have been expected.
        unlisted: relative paths of folders that could not be looked into; "" is the root.
    """

    files: list[str] = field(default_factory=list[str])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unlisted: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file.

    Attributes:
        text: with line feeds as the only line ends.
        digest: of the bytes.
        encoding: as the Encoding Standard names it, or "utf-32le" or "utf-32be".
    """

    text: str
    digest: str
    encoding: str


def list_folder(root: Path, suffixes: Collection[str]) -> Listing:
    """Return the files below `root` that have one of the suffixes (with dot, in lower case).

    Hidden files and folders, virtual environments, `node_modules` and the like are passed over.
    Symbolic links are not followed: what they show inside the folder is found anyway.

    Raises:
        OSError: `root` is missing, or is no folder.
    """
    if not root.is_dir():
        root.stat()  # says what is wrong, if it is not only no folder
        raise NotADirectoryError(f"{root} is no folder")
    listing = Listing()
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:
            listing.unlisted.append(folder)
            listing.skipped.append((folder, f"cannot be listed: {error.strerror}"))
            continue
        visible = [entry for entry in entries if not _passed_over(entry)]
        pending.extend(_sort(visible, folder, suffixes, listing))
    listing.files.sort()
    listing.skipped.sort()
    return listing


def _sort(
    entries: list[os.DirEntry[str]], folder: str, suffixes: Collection[str], listing: Listing
) -> Iterator[str]:
    """Put the entries into the listing and yield the folders among them."""
    for entry in entries:
        relative = f"{folder}/{entry.name}" if folder else entry.name
        wanted = suffix_of(relative) in suffixes
        if entry.is_symlink():
            if wanted or Path(entry.path).is_dir():
                listing.skipped.append((printable(relative), "symbolic link"))
        elif entry.is_dir():
            yield relative
        elif wanted and printable(relative) != relative:
            listing.skipped.append((printable(relative), "its name is no text"))
        elif wanted and not entry.is_file():
            listing.skipped.append((relative, "no regular file"))
        elif wanted:
            listing.files.append(relative)


def _passed_over(entry: os.DirEntry[str]) -> bool:
    return (
        entry.name.startswith(".")
        or entry.name in _GENERATED
        or Path(entry.path, "pyvenv.cfg").exists()
    )


def suffix_of(path: str) -> str:
    """Return the suffix with its dot in lower case, as in `READERS`."""
    return Path(path).suffix.lower()


def printable(path: str) -> str:
    """Return the path with a question mark for each byte that is no text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_file(path: Path, max_bytes: int) -> Content:
    """Return the file's text.

    Raises:
        Unreadable: it is gone, too large, binary, or the system refuses it.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise Unreadable("vanished while the folder was read") from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", gone=False) from None
    if len(raw) > max_bytes:
        raise Unreadable(f"larger than {max_bytes} bytes")
    text, encoding = _decoded(raw, "html" if READERS.get(suffix_of(path.name)) is read_html else "")
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return Content(lines, hashlib.sha256(raw).hexdigest(), encoding)


def _decoded(raw: bytes, markup: str) -> tuple[str, str]:
    """Return the text of a file and its encoding.

    Raises:
        Unreadable: it holds no text.
    """
    try:
        decoded = decode_file(raw, markup=markup)
    except ValueError as error:
        raise Unreadable(f"begins like {error}, but is not") from None
    text, encoding = decoded.text, decoded.encoding
    if encoding == "replacement":
        raise Unreadable("in an encoding that is not read")
    # Only Unicode rules out bytes: a file that is in none of its encodings may hold anything.
    if "\0" in text or (not encoding.startswith("utf-") and _control(text)):
        raise Unreadable("binary")
    return text, encoding
