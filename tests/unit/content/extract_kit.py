"""Shared by tests of formats: reading content of a type."""

from lib.content import Extracted, extract

URL = "https://example.org/a/feed"


def read(body: str | bytes, content_type: str) -> Extracted:
    raw = body.encode() if isinstance(body, str) else body
    return extract(raw, content_type=content_type, charset=None, url=URL)
