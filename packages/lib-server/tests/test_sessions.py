"""Sessions, scores and blobs over HTTP."""

import base64
from typing import Any

from server_kit import OneKey, as_, echo_agent, parsed, serving

from lib import Agent, Engine
from lib.events import MemoryBlobStore
from lib.llm import FunctionClient
from lib_server import Server


async def test_a_session_answers_turn_by_turn_until_it_is_closed() -> None:
    async with serving(Server(echo_agent())) as up:
        session = await up.client.post("/v1/sessions", json={"key": "chat-1"})
        again = await up.client.post("/v1/sessions", json={"key": "chat-1"})
        path = session.headers["location"]
        turn = (await up.client.post(f"{path}/messages", json={"input": "one"})).json()
        result = (await up.client.get(f"/v1/runs/{turn['run_id']}/result?wait_s=60")).json()
        stream = {"accept": "text/event-stream"}
        async with up.client.stream(
            "POST", f"{path}/messages", json={"input": "two"}, headers=stream
        ) as answer:
            sent = [event async for event in parsed(answer.aiter_lines())]
        history = (await up.client.get(f"{path}/messages")).json()["messages"]
        seen = (await up.client.get(path)).json()
        closed = await up.client.delete(path)
        late = await up.client.post(f"{path}/messages", json={"input": "three"})

    assert (session.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == session.json()["id"]
    assert result["text"] == "You wrote: one"
    assert sent[-1].event == "run.end"
    assert [each["content"] for each in history] == [
        *("one", "You wrote: one", "two", "You wrote: two")
    ]
    assert len(seen["turns"]) == 2
    assert closed.status_code == 202
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")


async def test_what_no_session_can_take_is_refused() -> None:
    async with serving(Server(echo_agent())) as up:
        path = (await up.client.post("/v1/sessions", json={})).headers["location"]
        from_assistant = {"input": [{"role": "assistant", "content": "hi"}]}
        answers = [
            await up.client.post("/v1/sessions", json={"budget": {"depth": 0}}),
            await up.client.post("/v1/sessions", json={"turn_budget": {"cost": 1e300}}),
            await up.client.post(f"{path}/messages", json=from_assistant),
            await up.client.post(f"{path}/messages", json={"input": []}),
        ]
        turns = (await up.client.get(path)).json()["turns"]

    assert [answer.status_code for answer in answers] == [422] * 4
    assert turns == []


async def test_a_message_with_a_key_is_answered_once() -> None:
    async with serving(Server(echo_agent())) as up:
        path = (await up.client.post("/v1/sessions", json={})).headers["location"]
        send, key = up.client.post, {"Idempotency-Key": "m-1"}
        first = await send(f"{path}/messages", json={"input": "hi"}, headers=key)
        again = await send(f"{path}/messages", json={"input": "hi"}, headers=key)
        other = await send(f"{path}/messages", json={"input": "ho"}, headers=key)

    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_what_is_no_session_of_the_tenant_is_missing() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        own = (await up.client.post("/v1/sessions", json={}, headers=as_("acme"))).json()["id"]
        run = await up.client.post("/v1/runs", json={"input": "hi"}, headers=as_("umbrella"))
        for method, path, body in [
            ("GET", "", None),
            ("GET", "/messages", None),
            ("POST", "/messages", {"input": "hi"}),
            ("DELETE", "", None),
        ]:
            for each in (own, run.json()["id"], "nothing"):
                answer = await up.client.request(
                    method, f"/v1/sessions/{each}{path}", json=body, headers=as_("umbrella")
                )
                assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")


async def test_a_run_is_judged_and_a_judgement_counts_once_under_its_key() -> None:
    async with serving(Server(echo_agent())) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        path = f"/v1/runs/{run['id']}/scores"
        await up.client.get(f"/v1/runs/{run['id']}/result?wait_s=60")
        score = {"name": "helpful", "value": 0.5, "comment": "so so", "key": "k"}
        first = await up.client.post(path, json=score)
        await up.client.post(path, json=score)
        await up.client.post(path, json={"name": "polite", "value": True})
        blank = await up.client.post(path, json={"name": " ", "value": 1})
        listed = (await up.client.get(path)).json()["scores"]

    assert first.status_code == 201
    assert [(each["name"], each["value"]) for each in listed] == [
        ("helpful", 0.5),
        ("polite", True),
    ]
    assert listed[0]["source"] == "human"
    assert blank.status_code == 422


def sizes(messages: Any) -> str:
    return ",".join(str(len(part.data)) for part in messages[-1].parts)


async def test_an_upload_is_an_input_of_its_tenant_and_of_no_other() -> None:
    content = bytes(range(256)) * 2000
    agent = Agent(FunctionClient(sizes, modalities=frozenset({"text", "image"})))
    engine = Engine("memory:", agents=[agent], blobs=MemoryBlobStore())
    async with serving(Server(engine, auth=OneKey())) as up:
        png = {"content-type": "image/png", **as_("acme")}
        blob = await up.client.post("/v1/blobs", content=content, headers=png)
        digest = blob.json()["digest"]
        own = await up.client.get(f"/v1/blobs/{digest}", headers=as_("acme"))
        foreign = await up.client.get(f"/v1/blobs/{digest}", headers=as_("umbrella"))
        small = base64.b64encode(b"small").decode()
        parts = [
            {"type": "image", "upload": {"digest": digest}},
            {"type": "image", "data": small, "media_type": "image/png"},
        ]
        body = {"input": [{"content": parts}]}
        run = (await up.client.post("/v1/runs", json=body, headers=as_("acme"))).json()
        wait = f"/v1/runs/{run['id']}/result?wait_s=60"
        result = (await up.client.get(wait, headers=as_("acme"))).json()
        stolen = await up.client.post("/v1/runs", json=body, headers=as_("umbrella"))
        session = await up.client.post("/v1/sessions", json={}, headers=as_("umbrella"))
        sent = await up.client.post(
            f"/v1/sessions/{session.json()['id']}/messages", json=body, headers=as_("umbrella")
        )

    assert blob.json() == {"digest": digest, "size": len(content), "media_type": "image/png"}
    assert own.content == content
    assert own.headers["content-type"] == "image/png"
    assert own.headers["x-content-type-options"] == "nosniff"
    assert (foreign.status_code, foreign.json()["code"]) == (404, "blob_not_found")
    for refused in (stolen, sent):
        assert (refused.status_code, refused.json()["code"]) == (409, "upload_not_found")
    assert result["text"] == f"{len(content)},5"


async def test_a_server_without_a_blob_store_says_so() -> None:
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.post(
            "/v1/blobs", content=b"x", headers={"content-type": "text/plain"}
        )

    assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")
