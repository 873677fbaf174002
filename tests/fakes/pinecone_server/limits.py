"""The requests that Pinecone refuses, and its words for that."""

from __future__ import annotations

import json
from typing import Any, Final, cast

MAX_VECTORS: Final = 1000
MAX_BODY_BYTES: Final = 2_000_000
MAX_METADATA_BYTES: Final = 40 * 1024
MAX_RESULTS: Final = 10_000
MAX_RESULT_BYTES: Final = 4_000_000
MAX_PAGE: Final = 100
MAX_NAME: Final = 512


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, code: int = 3) -> None:
        self.status = status
        self.body: dict[str, Any] = {"code": code, "message": message, "details": []}
        super().__init__(message)


def check_name(name: object, what: str) -> str:
    """Refuse what is no id or namespace."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        raise Refused(400, f"{what} must have 1 to {MAX_NAME} characters")
    if not name.isascii() or "\0" in name:
        raise Refused(400, f"{what} must be ASCII")
    return name


def check_metadata(metadata: dict[str, Any]) -> None:
    """Refuse metadata that is too large or of other types than Pinecone's."""
    if len(json.dumps(metadata, ensure_ascii=False).encode()) > MAX_METADATA_BYTES:
        raise Refused(400, "metadata size is above the limit of 40960 bytes per vector")
    for key, value in metadata.items():
        if key.startswith("$"):
            raise Refused(400, f"metadata key {key!r} must not start with a dollar")
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in cast(list[Any], value)):
                raise Refused(400, "metadata value must be a list of strings")
        elif not isinstance(value, str | bool | int | float):
            raise Refused(
                400, "metadata value must be a string, number, boolean or list of strings"
            )
