"""Unique names."""

from __future__ import annotations

import secrets


def new_id() -> str:
    """Return 32 hex digits that are unique in the world."""
    return secrets.token_hex(16)
