"""Readable text from what strangers serve: HTML, JSON, XML, feeds, PDF, in any encoding."""

from __future__ import annotations

from lib.tools.builtin.extract.extracted import Extracted
from lib.tools.builtin.extract.paging import page
from lib.tools.builtin.extract.reading import extract

__all__ = ["Extracted", "extract", "page"]
