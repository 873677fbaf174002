"""Ids and namespaces as Pinecone takes them: 1 to 512 ASCII characters.

What is printable ASCII without a percent sign stays as it is. Anything else is percent-encoded, and
what is too long then is named by its digest, after "%h", which no encoding begins with.
Source: https://docs.pinecone.io/reference/api/database-limits/identifier-limits (2026-11).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

DEFAULT_NAMESPACE: Final = "__default__"
"""What Pinecone calls the namespace without a name."""

_MAX: Final = 512
_DIGEST: Final = "%h"
_PLAIN: Final = re.compile(r"[!-$&-~]+")
_SAFE: Final = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}~"


def encoded(name: str) -> str:
    """Return an id, or a namespace that has a name, as Pinecone takes it."""
    if _PLAIN.fullmatch(name):
        return name
    quoted = quote(name, safe=_SAFE)
    return quoted if len(quoted) <= _MAX else _DIGEST + sha256(name.encode()).hexdigest()


def encoded_namespace(namespace: str) -> str:
    """Return a namespace as Pinecone takes it; one that has its default's name gets another."""
    if namespace == DEFAULT_NAMESPACE:
        return namespace.replace("_", "%5F", 1)
    return encoded(namespace) if namespace else DEFAULT_NAMESPACE


def decoded(name: str) -> str | None:
    """Return what was encoded, None if only a record can tell."""
    return None if name.startswith(_DIGEST) else unquote(name)


def decoded_namespace(name: str) -> str | None:
    """Return the namespace that was encoded, None if only a record can tell."""
    return "" if name in {"", DEFAULT_NAMESPACE} else decoded(name)
