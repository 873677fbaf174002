"""Quotas of callers: each refusal says what, how much, and when again."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from server_kit import OneKey, as_, echo_agent, serving

from lib import Agent, Engine
from lib.engine import Budget
from lib.errors import StoreError
from lib.events import MemoryEventStore
from lib.events.rates import Rate, RateState, SharesRates
from lib.llm import FunctionClient
from lib.testing.clock import ManualClock
from lib_server import Limits, Quota, Server
from lib_server.cli import main

MINUTE = Rate(3, 60)


def quiet_agent(**options: Any) -> Agent:
    """Return an agent whose model never answers."""
    never = asyncio.Event()

    async def wait(_: object) -> str:
        await never.wait()
        return ""

    return Agent(FunctionClient(wait), **options)


async def test_a_request_above_a_rate_is_refused_and_a_later_one_is_not() -> None:
    clock = ManualClock()
    limits = Limits(tenant=Quota(requests=MINUTE), key=Quota(requests=Rate(100, 60)))
    server = Server(echo_agent(), auth=OneKey(), limits=limits, clock=clock)
    async with serving(server, headers=as_("acme")) as up:
        answers = [await up.client.get("/v1/runs") for _ in range(4)]
        other = await up.client.get("/v1/runs", headers=as_("umbrella"))
        missing = await up.client.get("/v1/runs/nothing", headers=as_("umbrella"))
        health = await up.client.get("/healthz")
        clock.advance(20)
        later = await up.client.get("/v1/runs")

    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"tenant";q=3;w=60, "key";q=100;w=60'
    assert answers[0].headers["ratelimit"] == '"tenant";r=2;t=20, "key";r=99;t=1'
    refused = answers[3]
    assert refused.headers["retry-after"] == "20"
    assert refused.headers["ratelimit"] == '"tenant";r=0;t=60, "key";r=97;t=2'
    body = refused.json()
    assert (body["code"], body["level"], body["limit"], body["window_s"]) == (
        "rate_limited",
        "tenant",
        3,
        60,
    )
    assert (other.status_code, missing.status_code) == (200, 404)
    assert missing.headers["ratelimit"].startswith('"tenant";r=1;')
    assert "ratelimit" not in health.headers
    assert later.status_code == 200


async def test_named_tenants_and_keys_have_quotas_of_their_own() -> None:
    limits = Limits(
        tenant=Quota(requests=Rate(1)),
        tenants={"acme": Quota(requests=Rate(2))},
        keys={"umbrella": Quota(requests=Rate(5))},
    )
    server = Server(echo_agent(), auth=OneKey(), limits=limits, clock=ManualClock())
    async with serving(server) as up:
        acme = [(await up.client.get("/v1/runs", headers=as_("acme"))) for _ in range(3)]
        umbrella = await up.client.get("/v1/runs", headers=as_("umbrella"))

    assert [each.status_code for each in acme] == [200, 200, 429]
    assert umbrella.headers["ratelimit-policy"] == '"tenant";q=1;w=60, "key";q=5;w=60'


class Shared(MemoryEventStore, SharesRates):
    """A store that counts for all processes, and does not answer any more at some time."""

    answers = True

    async def take_rates(self, wanted: Any) -> list[RateState]:
        if not self.answers:
            raise StoreError("gone", retryable=True)
        return [RateState(0, 60.0, 60.0) for _ in wanted]


async def test_a_store_that_shares_rates_counts_and_a_failing_one_is_done_without() -> None:
    store = Shared()
    engine = Engine(store, agents=[echo_agent()])
    server = Server(engine, limits=Limits(server=Quota(requests=MINUTE)), clock=ManualClock())
    async with serving(server) as up:
        shared = await up.client.get("/v1/runs")
        store.answers = False
        own = [(await up.client.get("/v1/runs")).status_code for _ in range(4)]

    assert (shared.status_code, shared.headers["retry-after"]) == (429, "60")
    assert own == [200, 200, 200, 429]


async def test_a_run_above_the_open_ones_of_a_tenant_is_refused() -> None:
    limits = Limits(tenant=Quota(open_runs=2), server=Quota(open_runs=3))
    server = Server(quiet_agent(), auth=OneKey(), limits=limits, drain_s=0)
    async with serving(server) as up:

        async def start(tenant: str, key: str | None = None) -> httpx2.Response:
            headers = as_(tenant) | ({"idempotency-key": key} if key else {})
            return await up.client.post("/v1/runs", json={"input": "hi"}, headers=headers)

        first, second, third = [await start("acme", key) for key in ("a", "b", "c")]
        again = await start("acme", "a")
        others = [await start("umbrella") for _ in range(2)]
        path = f"/v1/runs/{first.json()['id']}"
        await up.client.post(f"{path}/cancel", json={}, headers=as_("acme"))
        await up.client.get(f"{path}/result?wait_s=60", headers=as_("acme"))
        freed = await start("acme", "c")

    assert [each.status_code for each in (first, second, third)] == [201, 201, 429]
    body = third.json()
    assert (body["code"], body["level"], body["limit"]) == ("open_runs_cap", "tenant", 2)
    assert third.headers["retry-after"] == "5"
    assert again.status_code == 200
    assert [each.status_code for each in others] == [201, 429]
    assert others[1].json()["level"] == "server"
    assert freed.status_code == 201


async def test_open_sessions_do_not_count_and_their_turns_do() -> None:
    limits = Limits(tenant=Quota(open_runs=1))
    server = Server(quiet_agent(), auth=OneKey(), limits=limits, drain_s=0)
    async with serving(server, headers=as_("acme")) as up:
        sessions = [(await up.client.post("/v1/sessions", json={})).json() for _ in range(3)]
        messages = [f"/v1/sessions/{each['id']}/messages" for each in sessions]
        first = await up.client.post(messages[0], json={"input": "hi"})
        path = f"/v1/runs/{first.json()['run_id']}/events?after=1"
        async with up.client.stream("GET", path, headers={"accept": "text/event-stream"}):
            second = await up.client.post(messages[1], json={"input": "hi"})

    assert first.status_code == 202
    assert (second.status_code, second.json()["code"]) == (429, "open_runs_cap")


async def test_a_stream_above_the_open_ones_is_refused_before_its_message_is_sent() -> None:
    limits = Limits(key=Quota(open_streams=1))
    server = Server(quiet_agent(), auth=OneKey(), limits=limits, drain_s=0)
    stream = {"accept": "text/event-stream"}
    async with serving(server, headers=as_("acme")) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        session = (await up.client.post("/v1/sessions", json={})).json()
        path = f"/v1/runs/{run['id']}/events"
        messages = f"/v1/sessions/{session['id']}/messages"
        async with up.client.stream("GET", path, headers=stream) as first:
            second = await up.client.get(path, headers=stream)
            sent = await up.client.post(messages, json={"input": "hi"}, headers=stream)
            page = await up.client.get(path)
            other = await up.client.get("/v1/runs/x/events", headers=as_("umbrella") | stream)
        turns = (await up.client.get(f"/v1/sessions/{session['id']}")).json()["turns"]
        async with up.client.stream("GET", path, headers=stream) as again:
            pass

    assert (first.status_code, page.status_code, again.status_code) == (200, 200, 200)
    assert other.status_code == 404
    for refused in (second, sent):
        body = refused.json()
        assert (refused.status_code, body["code"], body["limit"]) == (429, "stream_cap", 1)
        assert refused.headers["retry-after"] == "5"
    assert turns == []


@pytest.mark.parametrize(
    ("wanted", "status", "budget"),
    [
        (None, 201, {"tokens": 1000, "cost": 0.5, "llm_calls": 3}),
        ({"tokens": 10}, 201, {"tokens": 10, "cost": 0.5, "llm_calls": 3}),
        (
            {"tokens": 1000, "seconds": 5},
            201,
            {"tokens": 1000, "cost": 0.5, "llm_calls": 3, "seconds": 5},
        ),
        ({"tokens": 1001}, 422, ["/budget/tokens"]),
        ({"cost": 0.6, "llm_calls": 4}, 422, ["/budget/cost", "/budget/llm_calls"]),
    ],
)
async def test_a_caller_may_choose_less_than_the_ceilings_and_never_more(
    wanted: dict[str, Any] | None, status: int, budget: Any
) -> None:
    limits = Limits(
        server=Quota(run=Budget(tokens=5000, cost=0.5)),
        tenant=Quota(run=Budget(tokens=1000)),
        key=Quota(run=Budget(tokens=2000)),
    )
    agent = echo_agent(budget=Budget(llm_calls=3, tokens=10_000))
    async with serving(Server(agent, auth=OneKey(), limits=limits), headers=as_("acme")) as up:
        body = {"input": "hi"} | ({"budget": wanted} if wanted else {})
        answer = await up.client.post("/v1/runs", json=body)
        found = answer.json()
        if status == 201:
            path = f"/v1/runs/{found['id']}/events?limit=1"
            started = (await up.client.get(path)).json()["events"][0]["data"]
            assert started["budget"] == budget
        else:
            assert found["code"] == "budget_ceiling"
            assert [each["pointer"] for each in found["errors"]] == budget

    assert answer.status_code == status


async def test_the_ceilings_of_runs_hold_for_the_turns_of_sessions() -> None:
    limits = Limits(tenant=Quota(run=Budget(tokens=100)))
    async with serving(Server(echo_agent(), limits=limits)) as up:
        more = await up.client.post("/v1/sessions", json={"turn_budget": {"tokens": 101}})
        session = (await up.client.post("/v1/sessions", json={})).json()
        sent = {"input": "hi"}
        turn = (await up.client.post(f"/v1/sessions/{session['id']}/messages", json=sent)).json()
        stream = {"accept": "text/event-stream"}
        await up.client.get(f"/v1/runs/{turn['run_id']}/events", headers=stream)
        events = await up.client.get(f"/v1/runs/{turn['run_id']}/events?limit=1")

    assert (more.status_code, more.json()["errors"][0]["pointer"]) == (422, "/turn_budget/tokens")
    assert events.json()["events"][0]["data"]["budget"]["tokens"] == 100


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/responses", {"input": "hi"}),
    ],
)
async def test_quotas_hold_for_the_shapes_of_other_clients(path: str, body: Any) -> None:
    quota = Quota(open_runs=1, open_streams=1, run=Budget(tokens=100))
    server = Server(quiet_agent(name="quiet"), limits=Limits(tenant=quota), drain_s=0)
    body = {"model": "quiet", "stream": True, **body}
    async with serving(server) as up:
        async with up.client.stream("POST", path, json=body) as first:
            run = (await up.client.get("/v1/runs")).json()["runs"][0]
            stream = await up.client.post(path, json=body)
            whole = await up.client.post(path, json=body | {"stream": False})
        events = (await up.client.get(f"/v1/runs/{run['id']}/events?limit=1")).json()["events"]

    assert first.status_code == 200
    assert events[0]["data"]["budget"] == {"tokens": 100}
    assert (stream.status_code, stream.json()["error"]["code"]) == (429, "stream_cap")
    assert (whole.status_code, whole.json()["error"]["code"]) == (429, "open_runs_cap")
    assert whole.headers["retry-after"] == "5"


async def test_headers_are_bounded_by_their_bytes() -> None:
    async with serving(Server(echo_agent(), limits=Limits(header_bytes=2000))) as up:
        fits = await up.client.get("/healthz", headers={"x-long": "x" * 1000})
        above = await up.client.get("/healthz", headers={"x-long": "x" * 3000})

    assert fits.status_code == 200
    assert (above.status_code, above.json()["code"]) == (431, "headers_too_large")


FILE = """
body_bytes = 1000
stalled_s = 5

[server]
open_streams = 100

[tenant]
requests = { count = 600, window_s = 60 }
open_runs = 20
run = { tokens = 200000, cost = 2.5 }
day = { tokens = 2000000 }

[tenants.acme]
open_runs = 100

[keys.Ab12Cd34Ef56]
requests = { count = 10 }
"""


def test_limits_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(FILE, encoding="utf-8")

    assert Limits.read(path) == Limits(
        body_bytes=1000,
        stalled_s=5,
        server=Quota(open_streams=100),
        tenant=Quota(
            requests=Rate(600, 60),
            open_runs=20,
            run=Budget(tokens=200_000, cost=2.5),
            day=Budget(tokens=2_000_000),
        ),
        tenants={"acme": Quota(open_runs=100)},
        keys={"Ab12Cd34Ef56": Quota(requests=Rate(10))},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tenant]\nopen_run = 3", "tenant.open_run is no limit: expected one of"),
        ("[tenant]\nrun = {token = 3}", "tenant.run.token is no limit"),
        ("tenant = 3", "expected a table as tenant, got 3"),
        ("body_bytes = true", "expected a whole number as body_bytes"),
        ("body_bytes = 1.5", "expected a whole number as body_bytes"),
        ("body_bytes = -1", "expected a number above 0 as body_bytes"),
        ("stalled_s = nan", "expected a number above 0 as stalled_s"),
        ("[tenants.acme]\nrequests = {count = 0}", "tenants.acme.requests: expected a count"),
        ("[tenants.acme]\nrequests = {}", "tenants.acme.requests: "),
        ("[key]\nopen_runs = 3", "expected no open_runs of a key"),
        ("[tenant]\nopen_runs = -3", "tenant: expected 0 or more as open_runs"),
        ("[tenant]\nday = {seconds = 3}", "tenant: expected tokens, cost, llm_calls, tool_calls"),
        ("[tenant", "Expected"),
    ],
)
def test_a_file_that_describes_no_limits_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=message):
        Limits.read(path)
    result = CliRunner().invoke(main, ["serve", "server_kit:echo_agent", "--limits", str(path)])
    assert result.exit_code == 2
    assert message.replace("\\", "") in " ".join(result.output.split())
