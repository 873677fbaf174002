"""Where Cohere and Voyage are, and which key they take."""

from __future__ import annotations

import os
from typing import Final

from lib.llm.wire.openai import server_address, server_headers

COHERE_URL: Final = "https://api.cohere.com"
VOYAGE_URL: Final = "https://api.voyageai.com"
_ATLAS_URL: Final = "https://ai.mongodb.com"
_ATLAS_KEY: Final = "al-"


def cohere_account(
    what: str, path: str, api_key: str | None, base_url: str
) -> tuple[str, dict[str, str]]:
    """Return the URL of one of Cohere's endpoints and the headers of its requests.

    Args:
        what: who asks, for the error.
        path: of the endpoint, such as "/v2/rerank".
        api_key: defaults to CO_API_KEY, then COHERE_API_KEY.
        base_url: where it is Cohere's own, CO_API_URL counts.

    Raises:
        ValueError: there is no key, or a key or address that cannot be one.

    Source: Cohere's Python SDK 7.3, `client.py`.
    """
    key = _key(what, api_key, "CO_API_KEY", "COHERE_API_KEY")
    if base_url == COHERE_URL:
        base_url = os.environ.get("CO_API_URL") or COHERE_URL
    return _account(base_url, path, key)


def voyage_account(
    what: str, path: str, api_key: str | None, base_url: str
) -> tuple[str, dict[str, str]]:
    """Return the URL of one of Voyage's endpoints and the headers of its requests.

    Args:
        what: who asks, for the error.
        path: of the endpoint, such as "/v1/rerank".
        api_key: defaults to VOYAGE_API_KEY.
        base_url: where it is Voyage's own, keys of MongoDB Atlas ("al-...") go to MongoDB.

    Raises:
        ValueError: there is no key, or a key or address that cannot be one.

    Source: Voyage's Python SDK 0.5, `util.py`.
    """
    key = _key(what, api_key, "VOYAGE_API_KEY")
    if base_url == VOYAGE_URL and key.startswith(_ATLAS_KEY):
        base_url = _ATLAS_URL
    return _account(base_url, path, key)


def _key(what: str, given: str | None, *names: str) -> str:
    for key in (given, *map(os.environ.get, names)):
        if key and key.strip():
            return key.strip()
    raise ValueError(f"{what} needs a key: set {names[0]} or pass api_key=")


def _account(base_url: str, path: str, key: str) -> tuple[str, dict[str, str]]:
    if not base_url:
        raise ValueError("base_url is empty: leave it out, or give an http or https address")
    address, host = server_address(base_url)
    version = path[: path.index("/", 1)]  # some write it into the address, as the SDKs do
    return address.removesuffix(version) + path, server_headers(key, host)
