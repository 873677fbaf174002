"""Tell text from everything else by its first bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SNIFFED_BYTES: Final = 8192

BINARY: Final = "binary data"

Codec = Literal["utf-8", "utf-16-le", "utf-16-be"]

_MARKS: Final[tuple[tuple[bytes, Codec], ...]] = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Files that may hold no NUL byte in their beginning, and whose first bytes no text starts with.
_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x7fELF", "ELF program"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"PK\x05\x06", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    *((b"BZh%d1AY&SY" % level, "bzip2 archive") for level in range(1, 10)),
    (b"\xfd7zXZ", "xz archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"7z\xbc\xaf", "7z archive"),
    (b"Rar!\x1a", "RAR archive"),
    (b"OggS\0", "Ogg media"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xd0\xcf\x11\xe0", "OLE document"),
    (b"SQLite format 3\0", "SQLite database"),
)
_TEXT_CONTROLS: Final = b"\t\n\r\x0c\x08\x1b"
_CONTROLS: Final = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"
_CONTROL_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TextKind:
    """How a text is written.

    Attributes:
        codec: name of the codec of its bytes after the mark.
        mark: bytes of the byte order mark before it.
        unit: bytes of a code unit.
    """

    codec: Codec
    mark: int
    unit: int


def text_kind(head: bytes) -> TextKind | str:
    """Return how the text is written, or, when it is none, what it looks like.

    Args:
        head: the file's first `SNIFFED_BYTES` bytes, or all.
    """
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return _without_nul(head, TextKind(codec, len(mark), 1 if codec == "utf-8" else 2))
    return _without_nul(head, TextKind("utf-8", 0, 1))


def _without_nul(head: bytes, kind: TextKind) -> TextKind | str:
    if kind.unit == 1:
        if b"\0" in head:
            return BINARY
        controls = len(head) - len(head.translate(None, _CONTROLS))
        return BINARY if controls > len(head) * _CONTROL_SHARE else kind
    return BINARY if "\0" in head.decode(kind.codec, "replace") else kind
