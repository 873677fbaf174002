"""Fuzzes A2A: other agents get an answer in the shape of the protocol, and no 500."""

import os
from collections.abc import Iterator
from copy import copy
from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st
from server_kit import OneKey, as_, echo_agent

from lib import Engine
from lib_server import Server
from lib_server.a2a import A2AConfig

EXAMPLES = 2_000 if os.environ.get("LIB_TEST_LONG") else 60
TASK = f"{'0' * 32}.{'1' * 32}"
SENT: dict[str, Any] = {
    "message": {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"text": "hello"}, {"data": {"approvals": [{"id": "a", "decision": "deny"}]}}],
        "contextId": "trip",
        "taskId": TASK,
        "referenceTaskIds": [TASK],
        "extensions": [],
        "metadata": {},
    },
    "configuration": {"returnImmediately": True, "historyLength": 2, "acceptedOutputModes": []},
    "metadata": {},
}
PARAMS: dict[str, dict[str, Any]] = {
    "SendMessage": SENT,
    "SendStreamingMessage": SENT,
    "GetTask": {"id": TASK, "historyLength": 1},
    "ListTasks": {
        "contextId": "trip",
        "status": "TASK_STATE_WORKING",
        "pageSize": 3,
        "pageToken": "",
        "historyLength": 0,
        "statusTimestampAfter": "2026-01-01T00:00:00Z",
        "includeArtifacts": True,
    },
    "CancelTask": {"id": TASK},
    "SubscribeToTask": {"id": TASK},
    "GetTaskPushNotificationConfig": {"id": TASK},
    "GetExtendedAgentCard": {},
}
PATHS = {
    "SendMessage": "/a2a/message:send",
    "SendStreamingMessage": "/a2a/message:stream",
    "ListTasks": "/a2a/tasks",
    "GetTask": f"/a2a/tasks/{TASK}",
}
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def is_a(kind: type[Any], value: Any) -> bool:
    return isinstance(value, kind)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a value, itself included."""
    yield path
    for key in value if is_a(dict, value) else range(len(value) if is_a(list, value) else 0):
        yield from places(value[key], (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a value with another part."""
    if not path:
        return new
    copied = copy(value)
    copied[path[0]] = changed(value[path[0]], path[1:], new)
    return copied


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a method, and parameters of which one or two places are something else."""
    method = draw(st.sampled_from(sorted(PARAMS)))
    params: Any = PARAMS[method]
    for _ in range(draw(st.integers(1, 2))):
        where = draw(st.sampled_from([*places(params)]))
        params = changed(params, where, draw(JSON_VALUES))
    return method, params


def check_rpc(answer: httpx2.Response) -> None:
    assert answer.status_code == 200, answer.text
    lines = answer.text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    for text in data or [answer.text]:
        body = httpx2.Response(200, text=text).json()
        assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
        assert ("error" in body) != ("result" in body)
        if "error" in body:
            assert isinstance(body["error"]["message"], str)
            assert body["error"]["code"] != -32603, body


def check_rest(answer: httpx2.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"] == answer.status_code
        assert {"status", "message"} <= error.keys()


async def test_what_no_client_would_send_is_answered_by_the_book() -> None:
    server = Server(Engine("memory:", agents=[echo_agent()]), auth=OneKey(), a2a=A2AConfig())
    headers = {"a2a-version": "1.0", **as_("acme")}
    transport = httpx2.ASGITransport(app=server)
    client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)
    drawn: list[tuple[str, Any]] = []

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(requests())
    def draw(request: tuple[str, Any]) -> None:
        drawn.append(request)

    draw()
    async with server.lifespan(server), client:
        for method, params in drawn:
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            answer = await client.post("/a2a", json=body)
            if is_a(dict, params):
                check_rpc(answer)
            path = PATHS.get(method)
            if path is None:
                continue
            if "message" in path:
                check_rest(await client.post(path, json=params))
            elif is_a(dict, params):
                query = {str(name): str(value) for name, value in params.items()}
                check_rest(await client.get(path, params=query))

    assert len(drawn) >= EXAMPLES
