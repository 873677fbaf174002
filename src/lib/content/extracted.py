"""What is read out of a body."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """Readable text, with what should be said of it.

    Attributes:
        title: the page's own title, cleaned, or None.
        text: the text, cleaned; a table is rows, a link is `[text](absolute url)`.
        note: what a reader should know of the reading, for example that the page seems to need
            JavaScript, or None.
        charset: the encoding that it was read in, by its WHATWG name in lower case; "binary" for
            what is no text, such as PDF.
    """

    title: str | None
    text: str
    note: str | None
    charset: str
