"""A client under test of MCP's conformance suite: `MCPTools` calls all that a server lists.

Run by `scripts/mcp-client-conformance` as `python conformance_client.py URL`; the scenario and what
it needs stand in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from lib.errors import ToolError
from lib.mcp import Elicitation, MCPTools
from lib.tools import Tool, ToolContext

CALLBACK = AnyUrl("http://localhost:3000/callback")
CONTEXT = ToolContext(run_id="run", call_id="call", idempotency_key="key")


class Storage:
    """Keeps tokens and the client's registration."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Consents to everything: follows the address that a person would open."""

    def __init__(self) -> None:
        self.query: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            response = await client.get(url, follow_redirects=False)
        self.query = parse_qs(urlsplit(response.headers["location"]).query)

    async def code(self) -> AuthorizationCodeResult:
        first = {name: values[0] for name, values in self.query.items()}
        return AuthorizationCodeResult(
            code=first["code"], state=first.get("state"), iss=first.get("iss")
        )


def authentication(url: str, needs: Mapping[str, Any]) -> OAuthClientProvider:
    registered = None
    if client_id := needs.get("client_id"):
        secret = needs.get("client_secret")
        registered = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            redirect_uris=[CALLBACK],
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
        )
    person = Person()
    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="lib",
            redirect_uris=[CALLBACK],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=Storage(registered),
        redirect_handler=person.open,
        callback_handler=person.code,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )


async def accept_defaults(question: Elicitation) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = question.schema.get("properties", {})
    return {name: each["default"] for name, each in properties.items() if "default" in each}


def arguments_of(name: str, tools: Mapping[str, Tool]) -> dict[str, Any]:
    if name == "json_schema_echo":
        return {"schema": tools["json_schema_2020_12_tool"].input_schema}
    return {"a": 5, "b": 3} if name == "add_numbers" else {}


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    needs = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    server = MCPTools(
        url,
        allow_private_networks=True,
        auth=authentication(url, needs) if scenario.startswith("auth/") else None,
        elicit=accept_defaults,
        connect_timeout_s=50.0,
    )
    toolset = server.open_tools([])
    try:
        await toolset.refresh()
        tools = {tool.name: tool for tool in toolset.tools}
        calls = [(each["name"], each.get("arguments", {})) for each in needs.get("toolCalls", [])]
        for name, arguments in calls or [(name, arguments_of(name, tools)) for name in tools]:
            if name not in tools:
                continue
            try:
                await tools[name].call(arguments, CONTEXT)
            except ToolError as error:
                sys.stderr.write(f"{name}: {error}\n")
    finally:
        await toolset.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
