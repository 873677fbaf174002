"""Approvals and unknown outcomes over HTTP: seen, decided once, bound to the arguments."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from server_kit import OneKey, as_, serving

from lib import Agent, Engine
from lib.events import MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.testing.clock import ManualClock
from lib.tools import tool
from lib_server import Server


@tool(approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


def pays_back(messages: Any) -> Reply | str:
    conversation: list[Message] = list(messages)
    if conversation[-1].role == "tool":
        return "done"
    return Reply(parts=(ToolCall("call-1", "refund", {"order": "A/7"}),))


@asynccontextmanager
async def waiting(**options: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, dict[str, Any]]]:
    """Serve a run that waits for a person; yield a client and the approval."""
    agent = Agent(FunctionClient(pays_back), tools=[refund])
    async with serving(Server(agent, **options)) as up:
        headers = as_("acme") if options else {}
        run = (await up.client.post("/v1/runs", json={"input": "7"}, headers=headers)).json()
        async for event in _events(up.client, run["id"], headers):
            if event == "event: lib.approval.requested":
                break
        listed = (await up.client.get("/v1/approvals", headers=headers)).json()
        [approval] = listed["approvals"]
        yield up.client, approval


async def _events(
    client: httpx2.AsyncClient, run_id: str, headers: dict[str, str]
) -> AsyncGenerator[str]:
    stream = {"accept": "text/event-stream", **headers}
    async with client.stream("GET", f"/v1/runs/{run_id}/events", headers=stream) as answer:
        async for line in answer.aiter_lines():
            yield line


def decision(approval: dict[str, Any], word: str = "approve", **more: Any) -> dict[str, Any]:
    return {"decision": word, "arguments_digest": approval["arguments_digest"], **more}


def path_of(approval: dict[str, Any]) -> str:
    return f"/v1/runs/{approval['run_id']}/approvals/{approval['key']}"


async def test_an_approval_is_listed_and_given_once() -> None:
    async with waiting() as (client, approval):
        path = path_of(approval)
        first = await client.post(path, json=decision(approval, comment="fine"))
        again = await client.post(path, json=decision(approval, comment="fine"))
        other = await client.post(path, json=decision(approval, "deny"))
        result = (await client.get(f"/v1/runs/{approval['run_id']}/result?wait_s=60")).json()
        left = (await client.get("/v1/approvals")).json()
        of_run = (await client.get(f"/v1/runs/{approval['run_id']}/approvals")).json()

    assert (approval["tool"], approval["arguments"]) == ("refund", {"order": "A/7"})
    assert (first.status_code, first.json()["status"]) == (200, "approved")
    assert again.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (409, "already_decided")
    assert other.json()["decision"] == "approved"
    assert result["text"] == "done"
    assert left["approvals"] == []
    assert [each["status"] for each in of_run["approvals"]] == ["approved"]


async def test_a_decision_is_bound_to_the_arguments_that_were_seen() -> None:
    async with waiting() as (client, approval):
        path = path_of(approval)
        body = {"decision": "approve", "arguments_digest": "0" * 64}
        wrong = await client.post(path, json=body)
        none = await client.post(path, json={"decision": "approve"})
        missing = await client.post(f"{path}x", json=decision(approval))
        still = (await client.get("/v1/approvals")).json()

    assert (wrong.status_code, wrong.json()["code"]) == (409, "digest_mismatch")
    assert none.status_code == 422
    assert (missing.status_code, missing.json()["code"]) == (404, "approval_not_found")
    assert len(still["approvals"]) == 1


async def test_of_many_decisions_at_once_the_first_counts() -> None:
    async with waiting() as (client, approval):
        words = ["approve", "deny"] * 5
        posts = [client.post(path_of(approval), json=decision(approval, word)) for word in words]
        answers = await asyncio.gather(*posts)
        of_run = (await client.get(f"/v1/runs/{approval['run_id']}/approvals")).json()

    status = of_run["approvals"][0]["status"]
    for word, answer in zip(words, answers, strict=True):
        agreed = {"approve": "approved", "deny": "denied"}[word] == status
        assert answer.status_code == (200 if agreed else 409)


async def test_a_decision_needs_the_scope_and_the_tenant() -> None:
    async with waiting(auth=OneKey("read", "run", "approve")) as (client, approval):
        path = path_of(approval)
        foreign = await client.post(path, json=decision(approval), headers=as_("umbrella"))
        listed = (await client.get("/v1/approvals", headers=as_("umbrella"))).json()
        own = await client.post(path, json=decision(approval), headers=as_("acme"))
    async with waiting(auth=OneKey("read", "run")) as (client, approval):
        unfit = await client.post(path_of(approval), json=decision(approval), headers=as_("acme"))

    assert (foreign.status_code, foreign.json()["code"]) == (404, "run_not_found")
    assert listed["approvals"] == []
    assert own.json()["decided_by"] == "u@acme"
    assert own.json()["decided_at"] is not None
    assert (unfit.status_code, unfit.json()["scope"]) == (403, "approve")


async def test_an_approval_of_a_run_that_was_cancelled_is_withdrawn() -> None:
    async with waiting() as (client, approval):
        await client.post(f"/v1/runs/{approval['run_id']}/cancel")
        await client.get(f"/v1/runs/{approval['run_id']}/result?wait_s=60")
        late = await client.post(path_of(approval), json=decision(approval))

    assert (late.status_code, late.json()["code"]) == (409, "not_pending")


@pytest.mark.parametrize("happened", [True, False])
async def test_a_call_whose_outcome_is_unknown_is_settled_once(happened: bool) -> None:
    store, at = MemoryEventStore(), ManualClock().now()
    agent = Agent(FunctionClient(lambda _: ""), name="agent")
    async with serving(Server(Engine(store, agents=[agent]))) as up:
        call = {"key": "tool/1", "call_id": "c", "name": "refund", "args": {"order": "7"}}
        failed = {"key": "tool/1", "call_id": "c", "reason": "unknown", "code": "x", "message": ""}
        log = [
            NewEvent(k.RUN_STARTED, {"algorithm": "agent"}, at),
            NewEvent(k.TOOL_REQUESTED, {**call, "effects": "once", "idempotency_key": "i"}, at),
            NewEvent(k.TOOL_FAILED, failed, at),
            NewEvent(k.RUN_COMPLETED, {"outcome": "FAILED"}, at),
        ]
        await store.append("run", log, expected=0)
        listed = (await up.client.get("/v1/unknown-calls")).json()["calls"]
        path = "/v1/runs/run/unknown-calls/tool/1"
        first = await up.client.post(path, json={"happened": happened})
        again = await up.client.post(path, json={"happened": happened})
        other = await up.client.post(path, json={"happened": not happened})
        missing = await up.client.post(f"{path}0", json={"happened": True})
        left = (await up.client.get("/v1/unknown-calls")).json()["calls"]

    assert [(each["run_id"], each["key"], each["tool"]) for each in listed] == [
        ("run", "tool/1", "refund")
    ]
    assert (first.status_code, first.json()["happened"]) == (200, happened)
    assert again.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (409, "already_settled")
    assert (missing.status_code, missing.json()["code"]) == (409, "not_pending")
    assert left == []
