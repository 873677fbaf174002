"""The client of the official SDK of A2A speaks to the server, over both bindings."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from server_kit import OneKey, as_, serving
from test_a2a import refunding

from lib_server import Server
from lib_server.a2a import A2AConfig, Skill

BINDINGS = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@asynccontextmanager
async def connected(binding: str, *, streaming: bool) -> AsyncGenerator[Any]:
    audit = Skill(id="audit", name="Audit", description="Reads the books.")
    config = A2AConfig(extended_skills=[audit])
    server = Server(refunding(), auth=OneKey(), a2a=config)
    async with (
        serving(server) as up,
        httpx.AsyncClient(headers=as_("acme"), timeout=60) as http,
    ):
        card = await A2ACardResolver(http, f"http://127.0.0.1:{up.port}").get_agent_card()
        wanted = ClientConfig(
            httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming
        )
        yield ClientFactory(wanted).create(card)


def sent(text: str, message_id: str, task_id: str = "") -> pb.SendMessageRequest:
    message = pb.Message(
        message_id=message_id,
        role=pb.Role.ROLE_USER,
        parts=[pb.Part(text=text)],
        task_id=task_id,
    )
    return pb.SendMessageRequest(message=message)


@BINDINGS
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_client_of_the_sdk_sends_follows_decides_lists_and_cancels(
    binding: str, streaming: bool
) -> None:
    async with connected(binding, streaming=streaming) as client:
        first = [each async for each in client.send_message(sent("hello", "m1"))]
        task_id = first[0].task.id
        waiting = await client.get_task(pb.GetTaskRequest(id=task_id))
        rest = [each async for each in client.send_message(sent("approve", "m2", task_id))]
        done = await client.get_task(pb.GetTaskRequest(id=task_id))
        third = [each async for each in client.send_message(sent("hello", "m3"))]
        other = third[0].task.id
        cancelled = await client.cancel_task(pb.CancelTaskRequest(id=other))
        listed = await client.list_tasks(pb.ListTasksRequest(page_size=1, include_artifacts=True))
        card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())

    assert waiting.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
    assert len(rest) > 1 if streaming else len(rest) == 1
    assert done.status.state == pb.TaskState.TASK_STATE_COMPLETED
    assert done.artifacts[0].parts[0].text == "done: paid back 1"
    assert [each.message_id for each in done.history][::2] == ["m1", "m2"]
    assert cancelled.status.state == pb.TaskState.TASK_STATE_CANCELED
    assert (listed.total_size, listed.tasks[0].id) == (2, other)
    assert [each.id for each in card.skills] == ["default", "audit"]


@BINDINGS
async def test_a_subscriber_of_the_sdk_sees_the_task_end_and_errors_have_their_types(
    binding: str,
) -> None:
    async with connected(binding, streaming=True) as client:
        first = [each async for each in client.send_message(sent("hello", "m1"))]
        task_id = first[0].task.id
        following = client.subscribe(pb.SubscribeToTaskRequest(id=task_id))
        task = await anext(following)
        approved = sent("approve", "m2", task_id)
        approved.configuration.return_immediately = True
        _ = [each async for each in client.send_message(approved)]
        events = [each async for each in following]
        with pytest.raises(TaskNotFoundError):
            await client.get_task(pb.GetTaskRequest(id="nothing"))
        with pytest.raises(UnsupportedOperationError):
            _ = [each async for each in client.send_message(sent("more", "m3", task_id))]

    assert task.task.id == task_id
    assert events[-1].status_update.status.state == pb.TaskState.TASK_STATE_COMPLETED
