"""Imports what the extra `testing` brings, or names the extra."""

from __future__ import annotations

from lib.errors import MissingDriver

try:
    import pytest
    from hypothesis import strategies
except ModuleNotFoundError as _error:
    raise MissingDriver("lib.testing", driver=_error.name or "pytest", extra="testing") from _error

__all__ = ["pytest", "strategies"]
