"""Privacy: redaction of what is written, retention, and erasure for good."""

from __future__ import annotations

from lib.privacy.blobs import Collected, collect_blobs, release_blobs
from lib.privacy.erase import Erased, erase_run, erase_tenant
from lib.privacy.redactor import PatternRedactor, Redactor, redact_event
from lib.privacy.retention import expire

__all__ = [
    "Collected",
    "Erased",
    "PatternRedactor",
    "Redactor",
    "collect_blobs",
    "erase_run",
    "erase_tenant",
    "expire",
    "redact_event",
    "release_blobs",
]
