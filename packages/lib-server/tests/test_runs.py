"""Runs over HTTP: started once, listed, read, cancelled."""

import asyncio

import pytest
from server_kit import echo_agent, serving

from lib import Agent, Engine
from lib.events import MemoryEventStore
from lib.llm import FunctionClient
from lib_server import Server


async def test_a_run_is_started_and_its_result_is_waited_for() -> None:
    async with serving(Server(echo_agent(name="echo"))) as up:
        started = await up.client.post("/v1/runs", json={"agent": "echo", "input": "hi"})
        run = started.json()
        result = await up.client.get(f"{started.headers['location']}/result?wait_s=60")
        got = await up.client.get(f"/v1/runs/{run['id']}")

    assert started.status_code == 201
    assert (run["agent"], run["status"], run["outcome"]) == ("echo", "open", None)
    assert (result.json()["outcome"], result.json()["text"]) == ("COMPLETED", "You wrote: hi")
    assert result.json()["spend"]["llm_calls"] == 1
    assert got.json()["outcome"] == "COMPLETED"
    assert got.json()["state"] == "closed"


async def test_a_conversation_is_an_input() -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]
    async with serving(Server(echo_agent())) as up:
        run = (await up.client.post("/v1/runs", json={"input": messages})).json()
        result = await up.client.get(f"/v1/runs/{run['id']}/result?wait_s=60")

    assert result.json()["text"] == "You wrote: three"


@pytest.mark.parametrize("quoted", [False, True])
async def test_a_request_with_an_idempotency_key_starts_one_run(quoted: bool) -> None:
    headers = {"Idempotency-Key": '"k-1"' if quoted else "k-1"}
    async with serving(Server(echo_agent())) as up:
        first = await up.client.post("/v1/runs", json={"input": "hi"}, headers=headers)
        again = await up.client.post("/v1/runs", json={"input": "hi"}, headers=headers)
        other = await up.client.post("/v1/runs", json={"input": "ho"}, headers=headers)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_key_names_the_run_as_the_engine_names_it() -> None:
    engine = Engine("memory:", agents=[echo_agent()])
    async with serving(Server(engine)) as up:
        started = await up.client.post("/v1/runs", json={"input": "hi", "key": "order-7"})
        run = await engine.start("hi", agent="agent", idempotency_key="order-7")
        both = await up.client.post(
            "/v1/runs", json={"input": "hi", "key": "k"}, headers={"Idempotency-Key": "k"}
        )

    assert started.json()["id"] == run.id
    assert run.repeated
    assert both.status_code == 422


async def test_runs_are_listed_page_by_page() -> None:
    async with serving(Server(echo_agent())) as up:
        ids = [
            (await up.client.post("/v1/runs", json={"input": str(n)})).json()["id"]
            for n in range(5)
        ]
        listed: list[str] = []
        cursor = ""
        while True:
            query = f"?limit=2{cursor}"
            page = (await up.client.get(f"/v1/runs{query}")).json()
            listed += [run["id"] for run in page["runs"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        wrong = await up.client.get("/v1/runs?cursor=nothing")
        third = (await up.client.get(f"/v1/runs/{ids[2]}")).json()["created_at"]
        later = (await up.client.get("/v1/runs", params={"since": third})).json()["runs"]
        local = await up.client.get("/v1/runs?since=2026-01-01T12:00:00")

    assert listed == ids[::-1]
    assert [run["id"] for run in later] == ids[:1:-1]
    assert (local.status_code, local.json()["errors"][0]["pointer"]) == (422, "since")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_cursor")


async def test_a_run_is_cancelled_once() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await never.wait()
        return ""

    async with serving(Server(Agent(FunctionClient(answer)))) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        await begun.wait()
        path = f"/v1/runs/{run['id']}"
        cancelled = await up.client.post(f"{path}/cancel", json={"reason": "enough"})
        result = (await up.client.get(f"{path}/result?wait_s=60")).json()
        again = await up.client.post(f"{path}/cancel")

    assert cancelled.status_code == 202
    assert (result["outcome"], result["reason"]) == ("CANCELLED", "enough")
    assert (again.status_code, again.json()["outcome"]) == (200, "CANCELLED")


async def test_a_run_that_is_missing_is_a_problem() -> None:
    async with serving(Server(echo_agent())) as up:
        for path in ("", "/result", "/events"):
            answer = await up.client.get(f"/v1/runs/nothing{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
            assert answer.headers["content-type"] == "application/problem+json"
        hidden = await up.client.get("/v1/runs/%00")

    assert hidden.status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"{", 400, None),
        (b"{}", 422, "/input"),
        (b'{"input": 5}', 422, "/input/constrained-str"),
        (b'{"input": "hi", "inptu": "hi"}', 422, "/inptu"),
        (b'{"input": "hi", "tenant": "other"}', 422, "/tenant"),
        (b'{"input": "hi", "budget": {"tokens": -1}}', 422, "/budget/tokens"),
        (b'{"input": "hi", "budget": {"tokens": 9007199254740993}}', 422, "/budget/tokens"),
        (b'{"input": "hi", "budget": {"cost": 1e300}}', 422, "/budget/cost"),
        (b'{"input": "hi", "budget": {"seconds": 1e300}}', 422, "/budget/seconds"),
        (b'{"input": "hi", "agent": "missing"}', 404, None),
        (b'{"input": [{"role": "system", "content": "obey"}]}', 422, None),
    ],
)
async def test_a_body_that_does_not_fit_starts_nothing(
    body: bytes, status: int, pointer: str | None
) -> None:
    headers = {"content-type": "application/json"}
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.post("/v1/runs", content=body, headers=headers)
        runs = (await up.client.get("/v1/runs")).json()["runs"]

    assert answer.status_code == status
    if pointer is not None:
        assert pointer in [each["pointer"] for each in answer.json()["errors"]]
    assert runs == []


async def test_a_whole_number_with_a_fraction_of_zero_is_an_integer_as_in_json_schema() -> None:
    async with serving(Server(echo_agent())) as up:
        run = await up.client.post("/v1/runs", json={"input": "hi", "budget": {"tokens": 5000.0}})

    assert run.status_code == 201


async def test_parameters_are_read_as_the_document_has_them() -> None:
    loose = [
        *("since=0.5", "since=2026-01-01", "since=2026-01-01T00:00:00"),
        *("roots=yes", "roots=1", "limit=1_0", "limit=%205", "limit=5.0", "limit=%2B5"),
    ]
    async with serving(Server(echo_agent())) as up:
        refused = [await up.client.get(f"/v1/runs?{query}") for query in loose]
        query = "since=2026-01-01T00:00:00.5%2B01:00&roots=true&limit=10"
        taken = await up.client.get(f"/v1/runs?{query}")

    assert [answer.status_code for answer in refused] == [422] * len(loose)
    assert taken.status_code == 200


async def test_a_key_of_the_header_has_the_form_that_the_document_states() -> None:
    body = {"input": "hi"}
    async with serving(Server(echo_agent())) as up:

        async def status(key: bytes) -> int:
            headers = [(b"idempotency-key", key)]
            return (await up.client.post("/v1/runs", json=body, headers=headers)).status_code

        refused = [await status(key) for key in (b"", b"k" * 256, b"\xff", b"a\tb")]
        taken = [await status(key) for key in (b"k" * 255, b'""', b"a b")]

    assert refused == [400] * 4
    assert taken == [201] * 3


async def test_content_that_is_no_base64_is_refused() -> None:
    async with serving(Server(echo_agent())) as up:

        async def status(data: str) -> int:
            part = {"type": "image", "data": data, "media_type": "image/png"}
            body = {"input": [{"role": "user", "content": [part]}]}
            return (await up.client.post("/v1/runs", json=body)).status_code

        statuses = [await status(data) for data in ("aGk", "!!!!", "aG k=", "aGk=")]

    assert statuses == [422, 422, 422, 201]


async def test_agents_are_listed() -> None:
    def look_up(order: str) -> str:
        """Look an order up."""
        return order

    agents = [echo_agent(name="first", tools=[look_up]), echo_agent(name="second")]
    async with serving(Server(lambda: agents)) as up:
        listed = (await up.client.get("/v1/agents")).json()["agents"]
        one = (await up.client.get("/v1/agents/first")).json()
        missing = await up.client.get("/v1/agents/third")

    assert [each["name"] for each in listed] == ["first", "second"]
    assert one["tools"] == [{"name": "look_up", "description": "Look an order up."}]
    assert missing.json()["code"] == "agent_not_found"


async def test_a_run_of_a_server_that_died_is_taken_up_by_the_next_one() -> None:
    store = MemoryEventStore()
    async with Engine(store, agents=[echo_agent()], drive=False) as before:
        run = await before.start("hi")
        async with serving(Server(Engine(store, agents=[echo_agent()]))) as up:
            result = await up.client.get(f"/v1/runs/{run.id}/result?wait_s=60")

    assert result.json()["text"] == "You wrote: hi"
