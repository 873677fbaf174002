"""Folders of documents become chunks in an index, and stay in step with it."""

from __future__ import annotations

from lib.ingest.document import Document, Heading, Reader
from lib.ingest.folder import FittedEmbedder, Index, IngestReport, ingest_folder
from lib.ingest.split import Chunk, Splitter

__all__ = [
    "Chunk",
    "Document",
    "FittedEmbedder",
    "Heading",
    "Index",
    "IngestReport",
    "Reader",
    "Splitter",
    "ingest_folder",
]
