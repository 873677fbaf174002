"""Other agents send messages, follow tasks and decide, over both bindings of the protocol."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from server_kit import OneKey, Up, as_, echo_agent, parsed, serving, url_of

from lib import Agent, Engine, tool
from lib.engine import Result
from lib.errors import LLMError
from lib.events import MemoryEventStore, RunQuery
from lib.llm import (
    Delta,
    FunctionClient,
    Message,
    Reply,
    ScriptedClient,
    Text,
    ToolCall,
    ToolResult,
)
from lib_server import Limits, Principal, Server, Unauthenticated
from lib_server.a2a import A2AConfig, Answer, Skill
from lib_server.limits import Quota

VERSION = {"a2a-version": "1.0"}
BINDINGS = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
PATHS = {
    "SendMessage": ("POST", "/a2a/message:send"),
    "SendStreamingMessage": ("POST", "/a2a/message:stream"),
    "GetTask": ("GET", "/a2a/tasks/{id}"),
    "ListTasks": ("GET", "/a2a/tasks"),
    "CancelTask": ("POST", "/a2a/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/a2a/tasks/{id}:subscribe"),
    "GetExtendedAgentCard": ("GET", "/a2a/extendedAgentCard"),
    "CreateTaskPushNotificationConfig": ("POST", "/a2a/tasks/{id}/pushNotificationConfigs"),
}
REASONS = {
    "TASK_NOT_FOUND": (-32001, 404),
    "TASK_NOT_CANCELABLE": (-32002, 409),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400),
    "UNSUPPORTED_OPERATION": (-32004, 400),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 415),
    "VERSION_NOT_SUPPORTED": (-32009, 400),
}


@tool(approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return f"paid back {order}"


def pays_back(messages: Sequence[Message]) -> Reply | str:
    last = messages[-1]
    if last.role == "tool":
        [result] = [part for part in last.parts if isinstance(part, ToolResult)]
        return f"done: {result.content}"
    return Reply((ToolCall(f"call-{len(messages)}", "refund", {"order": len(messages)}),))


def refunding(**options: Any) -> Agent:
    return Agent(FunctionClient(pays_back), name="clerk", tools=[refund], **options)


def message(text: str = "hello", message_id: str = "m1", **more: str) -> dict[str, Any]:
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}


class Caller:
    """Another agent, which speaks one binding."""

    def __init__(self, up: Up, binding: str, headers: dict[str, str]) -> None:
        self._client = up.client
        self._binding = binding
        self._headers = {**VERSION, **headers}

    def request(self, method: str, params: dict[str, Any], **headers: str) -> httpx2.Request:
        headers = {**self._headers, **headers}
        if self._binding == "JSONRPC":
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            return self._client.build_request("POST", "/a2a", json=body, headers=headers)
        verb, path = PATHS[method]
        left = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        path = path.format(**params)
        if verb == "GET":
            query = {name: json.dumps(value).strip('"') for name, value in left.items()}
            return self._client.build_request(verb, path, params=query, headers=headers)
        return self._client.build_request(verb, path, json=left, headers=headers)

    async def answer(self, method: str, **params: Any) -> httpx2.Response:
        return await self._client.send(self.request(method, params))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.answer(method, **params)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        return body["result"] if self._binding == "JSONRPC" else body

    async def send(self, sent: dict[str, Any], **configuration: Any) -> dict[str, Any]:
        result = await self.call("SendMessage", message=sent, configuration=configuration)
        return result["task"]

    async def failure(self, method: str, **params: Any) -> tuple[str, str]:
        """Return the reason and message of an error, once its code is the right one."""
        answer = await self.answer(method, **params)
        error = answer.json()["error"]
        details: list[Any] = error.get("data" if self._binding == "JSONRPC" else "details") or [{}]
        reason: str = details[0].get("reason", "")
        if reason:
            code, status = REASONS[reason]
            assert details[0]["domain"] == "a2a-protocol.org"
            assert error["code"] == (code if self._binding == "JSONRPC" else status)
            assert answer.status_code == (200 if self._binding == "JSONRPC" else status)
        return reason or str(error["code"]), error["message"]

    async def stream(self, method: str, **params: Any) -> AsyncGenerator[dict[str, Any]]:
        answer = await self._client.send(self.request(method, params), stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream"), await answer.aread()
        async for event in parsed(answer.aiter_lines()):
            if self._binding == "JSONRPC":
                assert (event.data["jsonrpc"], event.data["id"]) == ("2.0", 7)
            yield event.data["result"] if self._binding == "JSONRPC" else event.data


@asynccontextmanager
async def called(
    source: Any,
    binding: str = "JSONRPC",
    *,
    caller: str = "acme",
    config: A2AConfig | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Up, Caller]]:
    server = Server(source, auth=OneKey(), a2a=config or A2AConfig(), **options)
    async with serving(server) as up:
        yield up, Caller(up, binding, as_(caller))


def texts(task: dict[str, Any]) -> list[str]:
    return [part["text"] for each in task.get("artifacts", ()) for part in each["parts"]]


def state(task: dict[str, Any]) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_")


# -- messages --------------------------------------------------------------------------------------


@BINDINGS
async def test_a_message_becomes_a_turn_of_its_caller_and_its_answer_an_artifact(
    binding: str,
) -> None:
    store = MemoryEventStore()
    async with called(Engine(store, agents=[echo_agent(name="clerk")]), binding) as (_, caller):
        task = await caller.send(message())
        found = await caller.call("GetTask", id=task["id"])
        runs = [(each.tenant, each.user) for each in await store.runs(RunQuery(algorithm="clerk"))]

    assert (state(task), texts(task)) == ("COMPLETED", ["You wrote: hello"])
    assert task["status"]["timestamp"].endswith("Z")
    [sent] = task["history"]
    assert (sent["messageId"], sent["role"], sent["parts"]) == (
        "m1",
        "ROLE_USER",
        [{"text": "hello"}],
    )
    assert found == task
    assert runs == [("acme", "u@acme")]


@BINDINGS
async def test_a_message_that_is_sent_again_is_answered_by_the_same_task(binding: str) -> None:
    async with called(echo_agent(), binding) as (_, caller):
        task = await caller.send(message())
        again = await caller.send(message())
        in_context = [
            await caller.send(message(message_id="m2", contextId=task["contextId"]))
            for _ in range(2)
        ]
        reason, detail = await caller.failure("SendMessage", message=message("other"))
        listed = await caller.call("ListTasks")

    assert again == task
    assert in_context[0]["id"] == in_context[1]["id"] != task["id"]
    assert reason in ("-32602", "400")
    assert "another key" in detail
    assert listed["totalSize"] == 2


async def test_a_context_goes_on_and_keeps_the_id_that_its_caller_chose() -> None:
    def counts(messages: Sequence[Message]) -> str:
        return f"{len(messages)} messages"

    async with called(Agent(FunctionClient(counts))) as (_, caller):
        first = await caller.send(message(contextId="trip"))
        second = await caller.send(message(message_id="m2", contextId="trip"))
        alone = await caller.send(message(message_id="m3"))
        more = await caller.send(message(message_id="m4", contextId=alone["contextId"]))
        listed = await caller.call("ListTasks", contextId="trip")

    assert [texts(each) for each in (first, second)] == [["1 messages"], ["3 messages"]]
    assert (first["contextId"], second["contextId"]) == ("trip", "trip")
    assert (texts(more), more["contextId"]) == (["3 messages"], alone["contextId"])
    assert [each["id"] for each in listed["tasks"]] == [second["id"], first["id"]]


async def test_data_and_files_are_read_and_content_that_is_not_taken_is_refused() -> None:
    seen: list[Any] = []

    def reads(messages: Sequence[Message]) -> str:
        seen.extend(messages[-1].parts)
        return "read"

    client = FunctionClient(reads, modalities=frozenset({"text", "image"}))
    config = A2AConfig(input_modes=["text/plain", "application/json", "image/*"])
    png = {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}
    async with called(Agent(client), config=config) as (_, caller):
        sent = {**message(), "parts": [{"data": {"order": 7}}, png]}
        task = await caller.send(sent)
        wrong = {**message(message_id="m2"), "parts": [{**png, "mediaType": "video/mp4"}]}
        reason, _ = await caller.failure("SendMessage", message=wrong)

    assert state(task) == "COMPLETED"
    assert seen[0].text == '{"order": 7}'
    assert seen[1].media_type == "image/png"
    assert reason == "CONTENT_TYPE_NOT_SUPPORTED"


class Order(BaseModel):
    number: int


async def test_an_output_of_a_type_is_data_and_a_function_may_make_the_answer() -> None:
    model = FunctionClient(lambda _: '{"number": 7}')

    def as_file(result: Result[Any]) -> Answer:
        return Answer(parts=[{"url": "https://example.com/7.txt", "mediaType": "text/plain"}])

    async with called(Agent(model, output=Order)) as (_, caller):
        typed = await caller.send(message())
    async with called(Agent(model), config=A2AConfig(answer=as_file)) as (_, caller):
        made = await caller.send(message())

    assert typed["artifacts"][0]["parts"] == [{"data": {"number": 7}}]
    assert made["artifacts"][0]["parts"][0]["url"] == "https://example.com/7.txt"


async def test_a_request_that_does_not_wait_gets_the_task_even_before_its_run_begins() -> None:
    async with called(echo_agent(), drive=False) as (_, caller):
        task = await caller.send(message(), returnImmediately=True)
        found = await caller.call("GetTask", id=task["id"])
        cancelled = await caller.call("CancelTask", id=task["id"])

    assert (state(found), found["history"][0]["parts"]) == ("SUBMITTED", [{"text": "hello"}])
    assert cancelled["id"] == task["id"]


# -- approvals -------------------------------------------------------------------------------------


@BINDINGS
async def test_a_call_that_waits_for_a_person_is_decided_by_the_next_message(binding: str) -> None:
    async with called(refunding(), binding) as (_, caller):
        task = await caller.send(message())
        [request] = task["status"]["message"]["parts"][1]["data"]["approvals"]
        decision = {"approvals": [{"id": request["id"], "decision": "approve"}]}
        sent = {**message(message_id="m2", taskId=task["id"]), "parts": [{"data": decision}]}
        done = await caller.send(sent)
        again = await caller.send(sent)

    assert state(task) == "INPUT_REQUIRED"
    assert (request["tool"], request["arguments"]) == ("refund", {"order": 1})
    assert (state(done), texts(done)) == ("COMPLETED", ["done: paid back 1"])
    assert [each["role"] for each in done["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]
    assert done["history"][2]["messageId"] == "m2"
    assert done["contextId"] == task["contextId"]
    assert again == done


async def test_a_word_approves_one_call_and_any_other_text_denies_it_for_the_agent_to_read() -> (
    None
):
    async with called(refunding()) as (_, caller):
        one = await caller.send(message())
        approved = await caller.send(message("approve", "m2", taskId=one["id"]))
        two = await caller.send(message(message_id="m3"))
        denied = await caller.send(message("not that one", "m4", taskId=two["id"]))

    assert texts(approved) == ["done: paid back 1"]
    assert state(denied) == "COMPLETED"
    assert "not that one" in texts(denied)[0]
    assert "paid back" not in texts(denied)[0]


async def test_a_text_that_is_sent_again_decides_only_once() -> None:
    calls = [Reply((ToolCall(f"call-{at}", "refund", {"order": at}),)) for at in (1, 2)]
    agent = Agent(ScriptedClient([*calls, "done"]), tools=[refund])
    async with called(agent) as (_, caller):
        task = await caller.send(message())
        first = await caller.send(message("no", "m2", taskId=task["id"]))
        again = await caller.send(message("no", "m2", taskId=task["id"]))
        done = await caller.send(message("approve", "m3", taskId=task["id"]))

    assert state(task) == state(first) == state(again) == "INPUT_REQUIRED"
    assert again["history"] == first["history"]
    assert state(done) == "COMPLETED"


async def test_only_a_caller_who_may_approve_decides() -> None:
    server = Server(refunding(), auth=OneKey("read", "run"), a2a=A2AConfig())
    async with serving(server) as up:
        for binding in ("JSONRPC", "HTTP+JSON"):
            caller = Caller(up, binding, as_("acme"))
            task = await caller.send(message())
            answer = await caller.answer(
                "SendMessage", message=message("approve", "m2", taskId=task["id"])
            )
            assert answer.status_code == 403
            assert state(await caller.call("GetTask", id=task["id"])) == "INPUT_REQUIRED"


async def test_a_context_takes_no_further_message_while_a_task_in_it_waits() -> None:
    async with called(refunding()) as (_, caller):
        task = await caller.send(message(contextId="trip"))
        reason, detail = await caller.failure(
            "SendMessage", message=message(message_id="m2", contextId="trip")
        )

    assert state(task) == "INPUT_REQUIRED"
    assert reason == "UNSUPPORTED_OPERATION"
    assert "waits for a person" in detail


# -- stores ----------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> list[Engine]:
    """Return two engines over one store, as two processes have them; in memory there is one."""
    kind = request.param
    url = "memory:" if kind == "memory" else url_of(kind, tmp_path)  # blocks, as opening it does
    return [Engine(url, agents=[refunding()]) for _ in range(1 if kind == "memory" else 2)]


async def test_every_store_has_tasks_that_go_on_at_any_process(engines: list[Engine]) -> None:
    async with AsyncExitStack() as stack:
        ups = [(await stack.enter_async_context(called(each)))[0] for each in engines]
        one, other = (
            Caller(up, binding, as_("acme"))
            for up, binding in ((ups[0], "JSONRPC"), (ups[-1], "HTTP+JSON"))
        )
        sent = [each async for each in one.stream("SendStreamingMessage", message=message())]
        task_id = sent[0]["task"]["id"]
        found = await other.call("GetTask", id=task_id)
        following = one.stream("SubscribeToTask", id=task_id)
        first = await anext(following)
        done = await other.send(message("approve", "m2", taskId=task_id))
        rest = [each async for each in following]
        again = await one.send(message("approve", "m2", taskId=task_id))
        second = await other.send(message(message_id="m3"))
        cancelled = await one.call("CancelTask", id=second["id"])
        listed = await other.call("ListTasks")

    assert sent[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert state(found) == state(first["task"]) == "INPUT_REQUIRED"
    assert (state(done), texts(done)) == ("COMPLETED", ["done: paid back 1"])
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert again == done
    assert (state(second), state(cancelled)) == ("INPUT_REQUIRED", "CANCELED")
    assert [each["id"] for each in listed["tasks"]] == [second["id"], task_id]


# -- streams ---------------------------------------------------------------------------------------


@BINDINGS
async def test_a_stream_shows_the_task_its_states_and_at_last_the_whole_answer(
    binding: str,
) -> None:
    async with called(echo_agent(), binding) as (_, caller):
        events = [each async for each in caller.stream("SendStreamingMessage", message=message())]
        task_id = events[0]["task"]["id"]
        task = await caller.call("GetTask", id=task_id)

    *_, artifact, last = events
    assert artifact["artifactUpdate"]["artifact"]["parts"] == [{"text": "You wrote: hello"}]
    assert (artifact["artifactUpdate"]["append"], artifact["artifactUpdate"]["lastChunk"]) == (
        False,
        True,
    )
    assert last["statusUpdate"]["status"] == task["status"]
    assert {each.get("taskId", task_id) for event in events for each in event.values()} == {task_id}


class Streaming:
    """A model that writes some words before its call, and its answer, in pieces."""

    model, provider, modalities = "streaming", "test", frozenset({"text"})

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        raise AssertionError("expected a request for a stream")

    async def stream(
        self, messages: Sequence[Message], **options: Any
    ) -> AsyncIterator[Delta | Reply]:
        calls = messages[-1].role == "user"
        pieces = ["Let me ", "look."] if calls else ["It is ", "there."]
        for piece in pieces:
            yield Delta(text=piece)
        text = Text("".join(pieces))
        yield Reply((text, ToolCall("call-1", "look", {})) if calls else (text,))


async def test_pieces_of_the_answer_are_appended_and_those_of_a_reply_before_are_replaced() -> None:
    @tool(effects="none")
    def look() -> str:
        """Look."""
        return "seen"

    model: Any = Streaming()
    async with called(Agent(model, tools=[look])) as (_, caller):
        events = [each async for each in caller.stream("SendStreamingMessage", message=message())]

    updates = [each["artifactUpdate"] for each in events if "artifactUpdate" in each]
    shown = [""]
    for update in updates:
        text = update["artifact"]["parts"][0]["text"]
        shown.append(shown[-1] + text if update["append"] else text)
    assert "Let me look." in shown
    assert shown[-2:] == ["It is there.", "It is there."]
    assert (updates[-1]["append"], updates[-1]["lastChunk"]) == (False, True)


@BINDINGS
async def test_a_stream_pauses_with_its_task_and_a_subscriber_sees_it_go_on(binding: str) -> None:
    async with called(refunding(), binding) as (_, caller):
        sent = [each async for each in caller.stream("SendStreamingMessage", message=message())]
        task_id = sent[0]["task"]["id"]
        following = caller.stream("SubscribeToTask", id=task_id)
        first = await anext(following)
        await caller.send(message("approve", "m2", taskId=task_id), returnImmediately=True)
        rest = [each async for each in following]
        reason, _ = await caller.failure("SubscribeToTask", id=task_id)

    assert sent[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert state(first["task"]) == "INPUT_REQUIRED"
    states = [each["statusUpdate"]["status"]["state"] for each in rest if "statusUpdate" in each]
    assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    assert reason == "UNSUPPORTED_OPERATION"


async def test_a_client_that_leaves_its_stream_leaves_the_task_alone() -> None:
    goes_on = asyncio.Event()

    async def waits(messages: Sequence[Message]) -> str:
        await goes_on.wait()
        return "done"

    async with called(Agent(FunctionClient(waits))) as (_, caller):
        following = caller.stream("SendStreamingMessage", message=message())
        task_id = (await anext(following))["task"]["id"]
        await following.aclose()
        again = caller.stream("SubscribeToTask", id=task_id)
        await anext(again)
        goes_on.set()
        events = [each async for each in again]

    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_streams_are_counted_with_all_others_of_a_tenant() -> None:
    limits = Limits(tenant=Quota(open_streams=0))
    async with called(echo_agent(), limits=limits) as (_, caller):
        answer = await caller.answer("SendStreamingMessage", message=message())

    assert answer.status_code == 429
    assert answer.json()["error"]["message"].startswith("stream_cap")


# -- tasks -----------------------------------------------------------------------------------------


class TwoUsers(OneKey):
    """Knows `Bearer TENANT/USER`."""

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated("missing")
        tenant, _, user = authorization.removeprefix("Bearer ").partition("/")
        scopes: frozenset[Any] = frozenset({"read", "run", "approve"})
        return Principal(key_id=user, tenant=tenant, user=user, scopes=scopes)


@BINDINGS
@pytest.mark.parametrize("foreign", ["umbrella/alice", "acme/bob"])
async def test_a_task_of_another_tenant_or_user_is_like_none(binding: str, foreign: str) -> None:
    server = Server(refunding(), auth=TwoUsers(), a2a=A2AConfig())
    missing = f"{'0' * 32}-{'0' * 32}"
    async with serving(server) as up:
        owner = Caller(up, binding, as_("acme/alice"))
        other = Caller(up, binding, as_(foreign))
        task = await owner.send(message())
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            assert await other.failure(method, id=task["id"]) == await other.failure(
                method, id=missing
            )
        answers = [
            await other.failure("SendMessage", message=message("approve", "m2", taskId=each))
            for each in (task["id"], missing)
        ]
        listed = await other.call("ListTasks")
        of_context = await other.call("ListTasks", contextId=task["contextId"])
        taken = await other.send(message(message_id="m3", contextId=task["contextId"]))
        kept = await owner.call("GetTask", id=task["id"])

    assert answers[0] == answers[1] == ("TASK_NOT_FOUND", "no task has this id")
    assert (listed["totalSize"], of_context["totalSize"]) == (0, 0)
    assert taken["id"].partition("-")[0] != task["contextId"]
    assert kept == task


@BINDINGS
async def test_tasks_are_listed_in_pages_last_changed_first(binding: str) -> None:
    async with called(refunding(), binding) as (_, caller):
        sent = [await caller.send(message(message_id=f"m{at}")) for at in range(3)]
        await caller.send(message("approve", "m9", taskId=sent[0]["id"]))
        first = await caller.call("ListTasks", pageSize=2)
        second = await caller.call("ListTasks", pageSize=2, pageToken=first["nextPageToken"])
        done = await caller.call(
            "ListTasks", status="TASK_STATE_COMPLETED", includeArtifacts=True, historyLength=0
        )
        waiting = await caller.call("ListTasks", status="TASK_STATE_INPUT_REQUIRED")
        reason, _ = await caller.failure("ListTasks", pageToken="nonsense")

    ids = [each["id"] for each in (*first["tasks"], *second["tasks"])]
    assert ids == [sent[0]["id"], sent[2]["id"], sent[1]["id"]]
    assert (first["totalSize"], first["pageSize"], second["nextPageToken"]) == (3, 2, "")
    assert "artifacts" not in first["tasks"][0]
    assert ([each["id"] for each in done["tasks"]], done["totalSize"]) == ([sent[0]["id"]], 1)
    assert texts(done["tasks"][0]) == ["done: paid back 1"]
    assert "history" not in done["tasks"][0]
    assert waiting["totalSize"] == 2
    assert reason in ("-32602", "400")


@BINDINGS
async def test_a_task_is_cancelled_once(binding: str) -> None:
    async with called(refunding(), binding) as (_, caller):
        task = await caller.send(message())
        cancelled = await caller.call("CancelTask", id=task["id"])
        reason, _ = await caller.failure("CancelTask", id=task["id"])
        further, _ = await caller.failure(
            "SendMessage", message=message("approve", "m2", taskId=task["id"])
        )

    assert state(cancelled) == "CANCELED"
    assert (reason, further) == ("TASK_NOT_CANCELABLE", "UNSUPPORTED_OPERATION")


async def test_a_run_that_fails_is_a_failed_task_that_says_why() -> None:
    def fails(messages: Sequence[Message]) -> str:
        raise LLMError("the model is gone")

    async with called(Agent(FunctionClient(fails))) as (_, caller):
        task = await caller.send(message())

    assert state(task) == "FAILED"
    assert task["status"]["message"]["parts"][0]["text"].startswith("FAILED: ")


async def test_history_is_as_long_as_its_reader_wants() -> None:
    async with called(refunding()) as (_, caller):
        task = await caller.send(message(), historyLength=0)
        one = await caller.call("GetTask", id=task["id"], historyLength=1)
        reason, _ = await caller.failure("GetTask", id=task["id"], historyLength=-1)

    assert "history" not in task
    assert [each["role"] for each in one["history"]] == ["ROLE_AGENT"]
    assert reason == "-32602"


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["", "0.3", "99.0", "1"])
@BINDINGS
async def test_a_version_that_is_not_spoken_is_refused(binding: str, version: str) -> None:
    async with called(echo_agent(), binding) as (up, _):
        caller = Caller(up, binding, {**as_("acme"), "a2a-version": version})
        reason, detail = await caller.failure("ListTasks")
        path = "/a2a/tasks?A2A-Version=1.0"
        named = await up.client.get(path, headers=as_("acme"))

    assert (reason, detail) == ("VERSION_NOT_SUPPORTED", "expected the header A2A-Version: 1.0")
    assert named.status_code == 200


@BINDINGS
async def test_push_notifications_are_refused_by_name(binding: str) -> None:
    url = "https://example.com/hook"
    async with called(echo_agent(), binding) as (_, caller):
        created = await caller.failure("CreateTaskPushNotificationConfig", id="t", url=url)
        wanted = {"taskPushNotificationConfig": {"url": url}}
        sent = await caller.failure("SendMessage", message=message(), configuration=wanted)

    assert (
        created == sent == ("PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe to the task, or get it")
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "method": "ListTasks"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Nothing"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 0}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": []}', -32600),
        (b"[" * 100_000, -32700),
    ],
)
async def test_a_malformed_request_is_an_error_of_json_rpc(body: bytes, code: int) -> None:
    headers = {**VERSION, **as_("acme"), "content-type": "application/json"}
    async with called(echo_agent()) as (up, _):
        answer = await up.client.post("/a2a", headers=headers, content=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)


MEANINGLESS: list[dict[str, Any]] = [
    {**message(), "parts": []},
    {**message(), "parts": [{}]},
    {**message(), "parts": [{"text": "a", "url": "https://example.com"}]},
    {**message(), "messageId": ""},
    {**message(), "role": "ROLE_AGENT"},
    {**message(), "parts": [{"raw": "???", "mediaType": "text/plain"}]},
    {"message_id": "m1"},
]


@pytest.mark.parametrize("sent", MEANINGLESS)
@BINDINGS
async def test_a_message_that_means_nothing_is_refused(binding: str, sent: Any) -> None:
    async with called(echo_agent(), binding) as (_, caller):
        reason, _ = await caller.failure("SendMessage", message=sent)
        listed = await caller.call("ListTasks")

    assert reason in ("-32602", "400")
    assert listed["tasks"] == []


@BINDINGS
async def test_content_of_another_type_is_refused_by_name(binding: str) -> None:
    path = "/a2a" if binding == "JSONRPC" else "/a2a/message:send"
    headers = {**VERSION, **as_("acme"), "content-type": "text/plain"}
    async with called(echo_agent(), binding) as (up, _):
        answer = await up.client.post(path, headers=headers, content=b"{}")

    error = answer.json()["error"]
    details = error["data" if binding == "JSONRPC" else "details"]
    assert details[0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_what_the_edge_refuses_has_the_shape_of_the_protocol() -> None:
    async with called(echo_agent()) as (up, _):
        answers = [
            await up.client.post("/a2a", json={}, headers=VERSION),
            await up.client.get("/a2a/tasks", headers=VERSION),
            await up.client.put("/a2a/tasks", headers={**VERSION, **as_("acme")}),
        ]

    assert [each.status_code for each in answers] == [401, 401, 405]
    assert [each.json()["error"]["status"] for each in answers] == [
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
        "INVALID_ARGUMENT",
    ]
    assert answers[0].headers["www-authenticate"].startswith("Bearer")


async def test_json_of_the_protocol_is_named_so_for_those_who_take_it() -> None:
    async with called(echo_agent()) as (up, _):
        headers = {**VERSION, **as_("acme"), "accept": "application/a2a+json"}
        answer = await up.client.get("/a2a/tasks", headers=headers)
        sent = await up.client.post(
            "/a2a/message:send",
            headers={**headers, "content-type": "application/a2a+json"},
            content=json.dumps({"message": {**message(), "unknown": 1}}),
        )

    assert answer.headers["content-type"] == "application/a2a+json"
    assert sent.status_code == 200


async def test_each_route_is_documented_under_a_name_of_its_own() -> None:
    document = Server(echo_agent(), a2a=A2AConfig()).openapi()
    operations = [
        each["operationId"] for path in document["paths"].values() for each in path.values()
    ]

    assert len(set(operations)) == len(operations)
    assert {"post_a2a", "post_a2a_message_send", "get_a2a_tasks"} <= set(operations)
    assert "post_a2a" not in str(Server(echo_agent()).openapi())


# -- the card --------------------------------------------------------------------------------------


async def test_the_card_is_public_and_says_where_and_how_the_agent_is_reached() -> None:
    skill = Skill(id="refunds", name="Refunds", description="Pays back.", tags=["money"])
    config = A2AConfig(description="Helps customers.", skills=[skill], version="2.1")
    async with called(echo_agent(name="clerk"), config=config) as (up, _):
        answer = await up.client.get("/.well-known/agent-card.json")
        etag = {"if-none-match": answer.headers["etag"]}
        again = await up.client.get("/.well-known/agent-card.json", headers=etag)

    card = answer.json()
    assert (card["name"], card["description"], card["version"]) == (
        "clerk",
        "Helps customers.",
        "2.1",
    )
    base = f"http://127.0.0.1:{up.port}/a2a"
    assert [(each["protocolBinding"], each["url"]) for each in card["supportedInterfaces"]] == [
        ("JSONRPC", base),
        ("HTTP+JSON", base),
    ]
    assert card["capabilities"] == {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": False,
    }
    assert card["securityRequirements"] == [{"schemes": {"bearer": {"list": []}}}]
    assert [each["id"] for each in card["skills"]] == ["refunds"]
    assert again.status_code == 304
    assert answer.headers["cache-control"] == "public, max-age=300"


@BINDINGS
async def test_callers_with_credentials_get_the_extended_card_if_there_is_one(
    binding: str,
) -> None:
    more = Skill(id="audit", name="Audit", description="Reads the books.")
    config = A2AConfig(extended_skills=[more], url="https://example.com/agents")
    async with called(echo_agent(), binding, config=config) as (up, caller):
        card = await caller.call("GetExtendedAgentCard")
        public = (await up.client.get("/.well-known/agent-card.json")).json()
        refused = await up.client.get("/a2a/extendedAgentCard", headers=VERSION)
    async with called(echo_agent(), binding) as (_, caller):
        reason, _ = await caller.failure("GetExtendedAgentCard")

    assert [each["id"] for each in card["skills"]] == ["default", "audit"]
    assert [each["id"] for each in public["skills"]] == ["default"]
    assert public["supportedInterfaces"][0]["url"] == "https://example.com/agents/a2a"
    assert refused.status_code == 401
    assert reason == "UNSUPPORTED_OPERATION"


async def test_a_server_offers_one_agent_that_it_has_or_none() -> None:
    agents = [echo_agent(name="clerk"), echo_agent(name="buyer")]
    for config, problem in [
        (A2AConfig(), "expected one agent for A2A"),
        (A2AConfig(agent="cook"), "the engine has no agent 'cook'"),
    ]:
        with pytest.raises(ValueError, match=problem):
            async with Server(agents, a2a=config):
                pass
    async with serving(Server(agents)) as up:
        answers = [
            await up.client.get("/.well-known/agent-card.json"),
            await up.client.post("/a2a", json={}),
        ]
    async with called(agents, config=A2AConfig(agent="buyer")) as (up, _):
        card = (await up.client.get("/.well-known/agent-card.json")).json()

    assert [each.status_code for each in answers] == [404, 404]
    assert card["name"] == "buyer"


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "ftp://example.com"},
        {"input_modes": "text/plain"},
        {"output_modes": []},
        {"extended_skills": [Skill(id="a", name="A", description="")] * 2},
    ],
)
def test_a_configuration_that_means_nothing_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        A2AConfig(**fields)
