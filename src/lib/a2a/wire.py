"""Requests to another agent, over JSON-RPC or HTTP+JSON; it is a stranger, and may lie.

An error says whether the agent can have acted: what it has refused, or what was never sent, did
not happen; anything else is of unknown outcome.

Source: A2A 1.0, 9 JSON-RPC Protocol Binding, 11 HTTP+JSON Protocol Binding.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import httpx2

from lib.a2a.card import Card, read_card
from lib.errors import ToolError
from lib.tools.builtin.fetch.pinned_transport import NotSentError

Headers: TypeAlias = Mapping[str, str] | Callable[[], Awaitable[Mapping[str, str]]]
Json: TypeAlias = dict[str, Any]

UNKNOWN: Final = "it may or may not have had its effect: verify before you repeat it"

_VERSION: Final = {"A2A-Version": "1.0"}
_EVENTS: Final = "text/event-stream"
_OK: Final = 200
_SERVER_ERRORS: Final = 500
_INTERNAL: Final = (-32603, -32006)
_PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{}"),
    "CancelTask": ("POST", "/tasks/{}:cancel"),
}


class Wire:
    """The HTTP of one agent."""

    def __init__(self, http: httpx2.AsyncClient, headers: Headers) -> None:
        """Speak through a client.

        Args:
            http: reaches the agent's origin and nothing else, and follows no redirect.
            headers: of each request.
        """
        self._http = http
        self._headers = headers

    async def card(self, url: str) -> Card:
        """Fetch the card.

        Raises:
            ToolError: it is not to be had, or the agent cannot be called.
        """
        request = self._http.build_request("GET", url, headers=await self._with({}))
        async with self._answered(request) as response:
            return read_card(await _body(response), url)

    async def call(self, card: Card, method: str, params: Json) -> Json:
        """Call an operation and return its result.

        Raises:
            ToolError: the agent has refused it, or gives no answer that can be read.
        """
        request = await self._request(card, method, params)
        async with self._answered(request) as response:
            body = await _body(response)
        return _result(body) if card.binding == "JSONRPC" else body

    @asynccontextmanager
    async def stream(
        self, card: Card, method: str, params: Json
    ) -> AsyncGenerator[AsyncGenerator[Json]]:
        """Call an operation, and yield what happens, until the connection ends.

        Raises:
            ToolError: as `call` does.
        """
        request = await self._request(card, method, params)
        async with self._answered(request) as response:
            yield self._results(card, response)

    async def _results(self, card: Card, response: httpx2.Response) -> AsyncGenerator[Json]:
        if not response.headers.get("content-type", "").lower().startswith(_EVENTS):
            body = await _body(response)
            yield _result(body) if card.binding == "JSONRPC" else body
            return
        data: list[str] = []
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                event = _read("\n".join(data))
                data = []
                yield _result(event) if "jsonrpc" in event else event

    async def _request(self, card: Card, method: str, params: Json) -> httpx2.Request:
        verb, path = _PATHS[method]
        accept = f"application/json, {_EVENTS}" if "Streaming" in method else "application/json"
        headers = await self._with({"Accept": accept})
        if card.binding == "JSONRPC":
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return self._http.build_request("POST", card.url, json=body, headers=headers)
        url = card.url + path.format(quote(str(params.get("id", "")), safe=""))
        if verb == "GET":
            return self._http.build_request(verb, url, headers=headers)
        return self._http.build_request(verb, url, json=params, headers=headers)

    async def _with(self, headers: Mapping[str, str]) -> dict[str, str]:
        more = self._headers() if callable(self._headers) else self._headers
        own = more if isinstance(more, Mapping) else await more
        return {**own, **headers, **_VERSION}

    @asynccontextmanager
    async def _answered(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Response]:
        """Yield a response of status 200."""
        try:
            response = await self._http.send(request, stream=True)
        except NotSentError as error:
            raise ToolError("unavailable", f"not called: {error}") from None
        except httpx2.HTTPError:
            raise _lost() from None
        try:
            if response.status_code != _OK:
                raise _refused(response.status_code, f"HTTP status {response.status_code}")
            yield response
        except httpx2.HTTPError:
            raise _lost() from None
        finally:
            await response.aclose()


def _lost() -> ToolError:
    return ToolError("unknown", f"the connection to the agent was lost; {UNKNOWN}")


def _refused(status: int, why: str) -> ToolError:
    if status >= _SERVER_ERRORS:
        return ToolError("unknown", f"the agent failed with {why}; {UNKNOWN}")
    return ToolError("unavailable", f"not called: the agent refuses with {why}")


async def _body(response: httpx2.Response) -> Json:
    return _read((await response.aread()).decode("utf-8", "replace"))


def _read(text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return cast(Json, value)
    raise ToolError("unknown", f"the agent's answer cannot be read; {UNKNOWN}")


def _result(body: Json) -> Json:
    """Return the result of a JSON-RPC response; the agent's words stay out of errors."""
    match body:
        case {"id": 1, "result": {**result}}:
            return result
        case {"error": {"code": int(code)}}:
            status = _SERVER_ERRORS if code in _INTERNAL else 0
            raise _refused(status, f"error {code}")
        case _:
            raise ToolError("unknown", f"the agent's answer cannot be read; {UNKNOWN}")
