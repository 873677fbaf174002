"""A tool's messages reach the client that wants them, in order, and before the result."""

from typing import Any, cast

import pytest
from mcp.client import Client
from mcp_types import (
    EmptyResult,
    LoggingMessageNotificationParams,
    SetLevelRequest,
    SetLevelRequestParams,
)

from lib import Agent, Engine, tool
from lib.events import MemoryEventStore
from lib.llm import FunctionClient
from lib.mcp import Caller, MCPToolServer, log
from lib.mcp.notices import LogLevels
from lib.mcp.sessions import LegacySession, LegacySessions
from lib.testing.clock import ManualClock

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
LEVEL = "io.modelcontextprotocol/logLevel"


@tool(effects="none")
async def chatty() -> str:
    """Send a message of each level."""
    for level in ("debug", "info", "warning", "emergency"):
        log(level, {"of": level}, logger="shop")
    return "done"


@tool(effects="none")
def threaded() -> str:
    """Send messages from a thread."""
    for number in range(3):
        log("info", number)
    return "done"


@tool(effects="none")
async def flooding() -> str:
    """Send more than is kept."""
    for number in range(5_000):
        log("error", number)
    return "done"


@tool(effects="none")
async def wrong() -> str:
    """Send a message of no level."""
    log("loud", "hello")  # pyright: ignore[reportArgumentType] - what is tested
    return "done"


class Observed:
    """A server, and what its client hears."""

    def __init__(self, mode: str, **options: Any) -> None:
        self.heard: list[LoggingMessageNotificationParams] = []
        self.mode = mode
        self.server = MCPToolServer([chatty, threaded, flooding, wrong], **options)

    async def _take(self, params: LoggingMessageNotificationParams) -> None:
        self.heard.append(params)

    async def call(self, name: str, level: str | None = None) -> Any:
        client = Client(self.server.protocol, mode=self.mode, logging_callback=self._take)
        async with self.server, client:
            meta: dict[str, Any] = {}
            if level is not None and self.mode == "auto":
                meta[LEVEL] = level
            elif level is not None:
                params = SetLevelRequestParams.model_validate({"level": level})
                await client.session.send_request(SetLevelRequest(params=params), EmptyResult)
            return await client.session.call_tool(name, {}, meta=cast("Any", meta or None))


@MODES
async def test_messages_of_the_level_and_above_are_sent_in_their_order(mode: str) -> None:
    observed = Observed(mode)
    await observed.call("chatty", "warning")

    assert [(each.level, each.data, each.logger) for each in observed.heard] == [
        ("warning", {"of": "warning"}, "shop"),
        ("emergency", {"of": "emergency"}, "shop"),
    ]


@pytest.mark.parametrize(("mode", "levels"), [("auto", []), ("legacy", ["info", "warning"])])
async def test_what_is_sent_without_a_level_depends_on_the_version(
    mode: str, levels: list[str]
) -> None:
    observed = Observed(mode)
    await observed.call("chatty")

    assert [each.level for each in observed.heard][:2] == levels


@MODES
async def test_a_tool_in_a_thread_sends_as_well(mode: str) -> None:
    observed = Observed(mode)
    await observed.call("threaded", "debug")

    assert [each.data for each in observed.heard] == [0, 1, 2]


async def test_of_a_flood_a_thousand_are_sent() -> None:
    observed = Observed("auto")
    result = await observed.call("flooding", "debug")

    assert not result.is_error
    assert [each.data for each in observed.heard] == [*range(1_000)]


async def test_a_level_that_is_none_is_an_error_of_the_tool() -> None:
    observed = Observed("auto")

    assert (await observed.call("wrong", "debug")).is_error
    with pytest.raises(ValueError, match="expected one of debug, info"):
        log("loud", "hello")  # pyright: ignore[reportArgumentType] - what is tested


def test_outside_of_a_call_nothing_happens() -> None:
    log("info", "nothing hears it")


async def test_of_a_callers_sessions_the_last_ones_have_a_level() -> None:
    store, clock = MemoryEventStore(), ManualClock()
    await store.setup()
    sessions = LegacySessions(store, clock=clock)
    levels = LogLevels(sessions)
    other, *own = [await sessions.begin({}, owner) for owner in ("ada", *["bob"] * 501)]
    for each in (other, *own, own[-1]):
        clock.advance(1)
        await levels.set(each, "error")

    read = [await sessions.read(each.id, each.owner) for each in (other, own[0], own[1], own[-1])]
    found = [levels.get(each) for each in read]
    assert found == ["error", "info", "error", "error"]
    assert len(await store.marks("mcp/log-level/")) == 501  # 500 of bob's, and one of ada's


async def test_the_level_of_a_session_holds_in_each_process_and_for_it_alone() -> None:
    def observed(session: LegacySession) -> Observed:
        def caller(_: Any) -> Caller:
            return Caller(session=session)

        return Observed("legacy", engine=engine, caller=caller)

    agent = Agent(FunctionClient(lambda _: "hello"), name="clerk")
    async with Engine(MemoryEventStore(), agents=[agent]) as engine:
        sessions = LegacySessions(engine.store, clock=engine.clock)
        first, second = await sessions.begin({}, ""), await sessions.begin({}, "")
        await observed(first).call("chatty", "emergency")
        read = await sessions.read(first.id, "")
        assert read is not None
        quiet, again, other = observed(read), observed(read), observed(second)
        await quiet.call("chatty")
        await again.call("chatty")
        await other.call("chatty")

    assert [[each.level for each in of.heard] for of in (quiet, again, other)] == [
        ["emergency"],
        ["emergency"],
        ["info", "warning", "emergency"],
    ]
