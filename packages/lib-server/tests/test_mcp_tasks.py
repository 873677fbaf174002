"""Tasks over HTTP: found by their owners alone, under the limits of their owners."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_task_client import connected, end_of, get, start
from server_kit import OneKey, as_, echo_agent, serving

from lib import Agent, Engine, tool
from lib.events import kinds as k
from lib.llm import FunctionClient, Reply, ToolCall
from lib.mcp.task_types import TASKS
from lib_server import Limits, Server
from lib_server.limits import Quota

MODERN = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {TASKS: {}},
        "elicitation": {"form": {}},
    },
}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}


async def test_a_call_of_an_agent_is_a_task() -> None:
    async with serving(Server(echo_agent(name="clerk"))) as up:
        url = f"http://127.0.0.1:{up.port}/mcp"
        async with connected(url) as session:
            created = await start(session, "clerk", "hello")
        result = await end_of(url, created["taskId"])

    assert created["resultType"] == "task"
    assert [block["text"] for block in result["content"]] == ["You wrote: hello"]


async def test_a_task_of_another_tenant_is_a_missing_one() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        url = f"http://127.0.0.1:{up.port}/mcp"
        async with connected(url, **as_("acme")) as session:
            task_id = (await start(session, "agent", "hello"))["taskId"]
            own = await get(session, task_id)
        found: list[Any] = []
        async with connected(url, **as_("umbrella")) as session:
            for each in (task_id, "0" * 32):
                with pytest.raises(MCPError) as caught:
                    await get(session, each)
                found.append((caught.value.code, caught.value.message, caught.value.data))

    assert own["taskId"] == task_id
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("header", [{}, {"mcp-name": "0" * 32}, {"mcp-name": "=?base64?!?="}])
async def test_a_header_that_names_another_task_is_refused(
    method: str, header: dict[str, str]
) -> None:
    async with serving(Server(echo_agent())) as up:
        async with connected(f"http://127.0.0.1:{up.port}/mcp") as session:
            task_id = (await start(session, "agent", "hello"))["taskId"]
        answer = await up.client.post(
            "/mcp",
            headers={**MODERN, "mcp-method": method, **header},
            json=request(method, taskId=task_id, inputResponses={}),
        )

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_a_task_above_a_quota_is_a_failed_call() -> None:
    limits = Limits(tenant=Quota(open_runs=0))
    async with (
        serving(Server(echo_agent(), auth=OneKey(), limits=limits)) as up,
        connected(f"http://127.0.0.1:{up.port}/mcp", **as_("acme")) as session,
    ):
        refused = await start(session, "agent", "hello")

    assert refused["isError"] is True
    assert refused["content"][0]["text"].startswith("not called: ")


@pytest.mark.parametrize(("scopes", "status"), [(["run"], "working"), ([], "input_required")])
async def test_calls_of_an_agent_are_shown_to_callers_who_may_approve(
    scopes: list[str], status: str
) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    call = Reply((ToolCall("c1", "pay", {}),))
    agent = Agent(FunctionClient(lambda _: call), name="clerk", tools=[pay])
    engine = Engine("memory:", agents=[agent])
    async with serving(Server(engine, auth=OneKey(*scopes))) as up:
        async with connected(f"http://127.0.0.1:{up.port}/mcp", **as_("acme")) as session:
            task_id = (await start(session, "clerk", "pay"))["taskId"]
        async for event in engine.run(task_id).events():
            if event.kind == k.APPROVAL_REQUESTED:
                break
        answer: Any = await up.client.post(
            "/mcp",
            headers={**MODERN, **as_("acme"), "mcp-method": "tasks/get", "mcp-name": task_id},
            json=request("tasks/get", taskId=task_id),
        )
        task = answer.json()["result"]

    assert (task["status"], "inputRequests" in task) == (status, status == "input_required")
