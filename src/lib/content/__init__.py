"""The one reader of strangers' documents: bytes of HTML, XML, feeds, JSON or PDF to clean text.

Fetching, ingestion and the tools' hygiene of outputs stand on it. Modules are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

if TYPE_CHECKING:
    from lib.content.extraction import Extracted, extract, page
    from lib.content.hygiene import clean, fenced

__all__ = ["Extracted", "clean", "extract", "fenced", "page"]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Extracted": "lib.content.extraction",
            "clean": "lib.content.hygiene",
            "extract": "lib.content.extraction",
            "fenced": "lib.content.hygiene",
            "page": "lib.content.extraction",
        },
    )
