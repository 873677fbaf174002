"""Tools of a server behind a URL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes.mcp_servers.kit import (
    CONTEXT,
    call,
    friendly_http,
    hostile_http,
    opened,
    over_http,
)
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import FetchBlocked, ToolError
from lib.mcp.client.network import policy_for
from lib.mcp.client.toolset import MCPTools
from lib.testing.clock import ManualClock


async def test_tools_are_found_and_called(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with friendly_http(str(log)) as url, opened(over_http(url)) as toolset:
        assert await call(toolset, "add", a=1, b=2) == "3"
        assert await call(toolset, "note_it", text="hello") == "noted hello"

    assert log.read_text(encoding="utf-8") == "hello\n"


async def test_a_server_that_is_down_fails_the_call_without_an_effect() -> None:
    async with hostile_http("plain") as server, opened(over_http(server.url)) as toolset:
        act = toolset
        assert len(toolset.tools) == 1
        url = server.url
    async with opened(over_http(url)) as toolset:
        assert toolset.tools == []
    with pytest.raises(ToolError) as caught:
        await call(act, "act")
    assert caught.value.code == "unavailable"


async def test_a_server_that_comes_back_is_used_again() -> None:
    async with hostile_http("plain") as server, opened(over_http(server.url)) as toolset:
        assert await call(toolset, "act") == "done"
        before = len(server.requests)
        assert await call(toolset, "act") == "done"
        assert len(server.requests) == before + 1


async def test_a_private_address_is_not_reached_unless_allowed() -> None:
    with pytest.raises(ValueError, match="expected an https URL"):
        MCPTools("http://127.0.0.1/mcp")
    with pytest.raises(FetchBlocked):
        MCPTools("file:///etc/passwd")
    async with hostile_http("plain") as server:
        url = server.url.replace("http:", "https:")
        async with opened(MCPTools(url)) as toolset:
            assert toolset.tools == []
        assert server.requests == []


@pytest.mark.parametrize("mode", ["redirects", "redirects-calls"])
async def test_redirects_are_not_led_elsewhere(mode: str) -> None:
    async with hostile_http("plain") as inside:
        async with hostile_http(mode, location=inside.url) as server:
            headers = {"Authorization": "Bearer secret"}
            async with opened(over_http(server.url, headers=headers)) as toolset:
                for tool in toolset.tools:
                    with pytest.raises(ToolError):
                        await call(toolset, tool.name)
                assert len(toolset.tools) == (mode == "redirects-calls")

        assert inside.requests == []
        assert server.requests


async def test_headers_go_to_the_server() -> None:
    async def token() -> dict[str, str]:
        return {"authorization": "Bearer fresh"}

    async with hostile_http("plain") as server, opened(over_http(server.url, headers=token)):
        assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer fresh"}


async def test_a_call_carries_its_idempotency_key() -> None:
    async with hostile_http("plain") as server, opened(over_http(server.url)) as toolset:
        await call(toolset, "act")

        meta = server.requests[-1][2]["params"]["_meta"]
        assert meta["lib.agents/idempotency-key"] == "key-1"


@pytest.mark.parametrize("mode", ["breaks-off", "bomb", "too-much"])
async def test_an_answer_that_cannot_be_read_is_of_unknown_outcome(mode: str) -> None:
    async with (
        hostile_http(mode) as server,
        opened(over_http(server.url, max_bytes=1_000_000)) as toolset,
    ):
        with pytest.raises(ToolError) as caught:
            await call(toolset, "act")
        assert caught.value.code == "unknown"

        await toolset.refresh()  # the connection is as it was
        assert len(toolset.tools) == 1


async def test_a_tool_that_its_server_has_changed_is_not_called_as_it_was() -> None:
    async with hostile_http("changes") as server, opened(over_http(server.url)) as toolset:
        (before,) = toolset.tools
        await toolset.refresh()

        assert toolset.tools[0].version != before.version
        with pytest.raises(ToolError, match="has changed the tool's definition"):
            await before.call({}, CONTEXT)
        assert "tools/call" not in [message.get("method") for _, _, message in server.requests]


async def test_a_list_is_kept_as_long_as_its_server_says() -> None:
    clock = ManualClock()
    async with (
        hostile_http("keeps") as server,
        opened(over_http(server.url, clock=clock)) as toolset,
    ):
        await toolset.refresh()
        assert server.listed == 1
        clock.advance(61)
        await toolset.refresh()
        assert server.listed == 2


async def test_a_list_is_read_again_once_its_server_says_that_it_has_changed() -> None:
    async with friendly_http(grows=True) as url, opened(over_http(url)) as toolset:
        before = [each.name for each in toolset.tools]
        while "more" not in [each.name for each in toolset.tools]:
            await call(toolset, "grow")
            await toolset.refresh()

        assert "more" not in before
        assert await call(toolset, "more") == "more"


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    async with hostile_http("hangs") as server, opened(over_http(server.url)) as toolset:
        calling = asyncio.create_task(call(toolset, "act"))
        while "tools/call" not in [message.get("method") for _, _, message in server.requests]:
            await SYSTEM_CLOCK.sleep(0)
        calling.cancel()
        async with asyncio.timeout(120):
            await server.abandoned.wait()
        await asyncio.wait([calling])

        assert calling.cancelled()


def test_authentication_may_reach_other_hosts_and_nothing_private() -> None:
    policy = policy_for("https://a.example:8443/mcp", private=False, anywhere=True, max_bytes=1)

    assert policy.allowed_hosts == ()
    assert set(policy.allowed_ports) == {443, 8443}
    assert not policy.allow_http
    assert not policy.allow_private_networks
