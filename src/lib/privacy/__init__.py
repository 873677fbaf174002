"""Privacy: redaction of what is written, retention, and erasure for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.privacy.redactor import Redactor, redact_event

if TYPE_CHECKING:
    from lib.privacy.blobs import Collected, collect_blobs, release_blobs
    from lib.privacy.erase import Erased, erase_run, erase_tenant
    from lib.privacy.pattern_redactor import PatternRedactor
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

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Collected": "lib.privacy.blobs",
            "Erased": "lib.privacy.erase",
            "PatternRedactor": "lib.privacy.pattern_redactor",
            "collect_blobs": "lib.privacy.blobs",
            "erase_run": "lib.privacy.erase",
            "erase_tenant": "lib.privacy.erase",
            "expire": "lib.privacy.retention",
            "release_blobs": "lib.privacy.blobs",
        },
    )
