"""The attribute names of each backend: one table per file."""

from __future__ import annotations

from lib.observe.dialects.genai import GENAI
from lib.observe.dialects.langfuse import LANGFUSE
from lib.observe.dialects.langsmith import LANGSMITH
from lib.observe.dialects.openinference import OPENINFERENCE
from lib.observe.dialects.table import COMMON, Enriched, TableDialect

__all__ = [
    "COMMON",
    "GENAI",
    "LANGFUSE",
    "LANGSMITH",
    "OPENINFERENCE",
    "Enriched",
    "TableDialect",
]
