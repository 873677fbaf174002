"""Budgets of a day: over all runs of a server, a tenant, a key, and over all processes."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
from server_kit import OneKey, as_, serving, url_of
from test_processes import serving_process

from lib import Agent, Engine
from lib.engine import Budget
from lib.engine.api.starting import start_id
from lib.events import EventStore, MemoryEventStore, open_store
from lib.llm import FunctionClient, Reply, Text, Usage
from lib.testing.clock import ManualClock
from lib_server import Limits, Principal, Quota, Server
from lib_server.problems import Problem
from lib_server.spending import Spending

DAY_S = 86_400
ACME = Principal(key_id="k", tenant="acme", user=None, scopes=frozenset({"run"}))


class Gate:
    """Makes models wait until it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()


def agent_of(tokens: int, gate: Gate | None = None, **options: Any) -> Agent:
    """Return an agent whose every answer takes so many tokens."""

    async def answer(_: object) -> Reply:
        if gate is not None:
            await gate.open.wait()
        return Reply((Text("done"),), usage=Usage(input_tokens=tokens, cost=tokens / 1000))

    return Agent(FunctionClient(answer), **options)


async def start(client: httpx2.AsyncClient, tenant: str = "acme", **body: Any) -> httpx2.Response:
    key = body.pop("idempotency_key", None)
    headers = as_(tenant) | ({"idempotency-key": key} if key else {})
    return await client.post("/v1/runs", json={"input": "hi"} | body, headers=headers)


async def run(client: httpx2.AsyncClient, tenant: str = "acme", **body: Any) -> httpx2.Response:
    """Start a run and wait for its end."""
    started = await start(client, tenant, **body)
    if started.status_code < 400:
        path = f"/v1/runs/{started.json()['id']}/result?wait_s=60"
        await client.get(path, headers=as_(tenant))
    return started


async def test_a_caller_sees_what_is_left_of_its_own_day() -> None:
    gate = Gate()
    agents = [agent_of(30, name="quick"), agent_of(10, gate, name="slow")]
    limits = Limits(
        server=Quota(day=Budget(tokens=1000)), tenant=Quota(day=Budget(tokens=100, cost=2.0))
    )
    async with serving(Server(agents, auth=OneKey(), limits=limits)) as up:
        await run(up.client)
        held = await start(up.client, agent="slow", budget={"tokens": 20})
        found = (await up.client.get("/v1/budget", headers=as_("acme"))).json()["budgets"]
        other = (await up.client.get("/v1/budget", headers=as_("umbrella"))).json()["budgets"]
        gate.open.set()
        await up.client.get(f"/v1/runs/{held.json()['id']}/result?wait_s=60", headers=as_("acme"))
        later = (await up.client.get("/v1/budget", headers=as_("acme"))).json()["budgets"]
    async with serving(Server(agent_of(1))) as up:
        none = (await up.client.get("/v1/budget")).json()

    facts = ("level", "resource", "limit", "spent", "held", "left")
    assert [tuple(each[name] for name in facts) for each in found] == [
        ("tenant", "tokens", 100, 30, 20, 50),
        ("tenant", "cost", 2, 0.03, 0, 1.97),
    ]
    assert [each["left"] for each in other] == [100, 2]
    assert [each["left"] for each in later] == [60, 1.96]
    assert found[0]["ends_at"].endswith("T00:00:00Z")
    assert none == {"budgets": []}


async def test_a_run_is_refused_once_the_day_of_its_tenant_is_spent() -> None:
    clock = ManualClock()
    clock.advance(DAY_S * 3 / 4)
    limits = Limits(tenant=Quota(day=Budget(tokens=100)))
    server = Server(agent_of(50), auth=OneKey(), limits=limits, clock=clock)
    async with serving(server) as up:
        runs = [await run(up.client) for _ in range(3)]
        other = await run(up.client, "umbrella")
        clock.advance(DAY_S / 4 - 1)
        last = await run(up.client)
        clock.advance(1)
        tomorrow = [await run(up.client) for _ in range(3)]

    assert [each.status_code for each in runs] == [201, 201, 429]
    assert runs[2].headers["content-type"] == "application/problem+json"
    assert runs[2].headers["retry-after"] == str(DAY_S // 4)
    body = runs[2].json()
    facts = ("code", "level", "resource", "limit", "spent", "held")
    assert [body[each] for each in facts] == ["budget_spent", "tenant", "tokens", 100, 100, 0]
    assert body["detail"].startswith("expected at most 100 tokens a day of the tenant: 100 are")
    assert other.status_code == 201
    assert (last.status_code, last.headers["retry-after"]) == (429, "1")
    assert [each.status_code for each in tomorrow] == [201, 201, 429]


@pytest.mark.parametrize(
    ("limits", "level", "resource"),
    [
        (Limits(server=Quota(day=Budget(tokens=50))), "server", "tokens"),
        (Limits(tenant=Quota(day=Budget(cost=0.05))), "tenant", "cost"),
        (Limits(keys={"acme": Quota(day=Budget(llm_calls=1))}), "key", "llm_calls"),
    ],
)
async def test_each_level_and_resource_has_a_day(limits: Limits, level: str, resource: str) -> None:
    server = Server(agent_of(50), auth=OneKey(), limits=limits, clock=ManualClock())
    async with serving(server) as up:
        first = await run(up.client)
        second = await run(up.client)
        other = await run(up.client, "umbrella")

    assert (first.status_code, second.status_code) == (201, 429)
    assert (second.json()["level"], second.json()["resource"]) == (level, resource)
    assert other.status_code == (429 if level == "server" else 201)


async def test_open_runs_hold_their_ceilings_until_they_end() -> None:
    gate = Gate()
    quota = Quota(run=Budget(tokens=40), day=Budget(tokens=100))
    server = Server(
        agent_of(10, gate), auth=OneKey(), limits=Limits(tenant=quota), clock=ManualClock()
    )
    async with serving(server) as up:
        open_ = [await start(up.client) for _ in range(2)]
        above = await start(up.client)
        smaller = await start(up.client, budget={"tokens": 20})
        gate.open.set()
        for each in (*open_, smaller):
            path = f"/v1/runs/{each.json()['id']}/result?wait_s=60"
            await up.client.get(path, headers=as_("acme"))
        later = [(await run(up.client)).status_code for _ in range(5)]

    assert [each.status_code for each in open_] == [201, 201]
    body = above.json()
    assert (above.status_code, body["spent"], body["held"]) == (429, 0, 80)
    assert "choose a budget of at most 20" in body["detail"]
    assert above.headers["retry-after"] == "5"
    assert smaller.status_code == 201
    # 30 are spent: runs of 10 each fit as long as 40 are left.
    assert later == [201, 201, 201, 201, 429]


async def test_an_open_run_without_a_ceiling_counts_with_what_it_has_spent() -> None:
    gate = Gate()
    quota = Quota(day=Budget(tokens=100))
    agents = [agent_of(60, name="quick"), agent_of(60, gate, name="slow")]
    server = Server(agents, auth=OneKey(), limits=Limits(tenant=quota), clock=ManualClock())
    async with serving(server) as up:
        slow = [await start(up.client, agent="slow") for _ in range(3)]
        quick = await run(up.client, agent="quick")
        gate.open.set()
        for each in slow:
            path = f"/v1/runs/{each.json()['id']}/result?wait_s=60"
            await up.client.get(path, headers=as_("acme"))
        after = await start(up.client, agent="quick")
        more = await start(up.client, budget={"tokens": 101})

    assert [each.status_code for each in (*slow, quick)] == [201] * 4
    assert (after.status_code, after.json()["spent"]) == (429, 240)
    assert (more.status_code, more.json()["code"]) == (422, "budget_ceiling")


async def test_a_repeated_start_counts_once_and_is_answered_when_all_is_spent() -> None:
    limits = Limits(tenant=Quota(day=Budget(llm_calls=2)))
    server = Server(agent_of(1), auth=OneKey(), limits=limits, clock=ManualClock())
    async with serving(server) as up:
        first = [await run(up.client, idempotency_key="a") for _ in range(3)]
        second = await run(up.client, idempotency_key="b")
        third = await run(up.client, idempotency_key="c")
        again = await run(up.client, idempotency_key="a")

    assert [each.status_code for each in first] == [201, 200, 200]
    assert (second.status_code, third.status_code, again.status_code) == (201, 429, 200)


async def test_a_start_that_fails_holds_nothing() -> None:
    quota = Quota(run=Budget(tokens=100), day=Budget(tokens=150))
    server = Server(agent_of(10), auth=OneKey(), limits=Limits(tenant=quota), clock=ManualClock())
    missing = {"type": "image", "upload": {"digest": "0" * 64}}
    message = {"role": "user", "content": [missing]}
    async with serving(server) as up:
        failed = await start(up.client, input=[message])
        started = await start(up.client)

    assert failed.status_code == 409, failed.text
    assert started.status_code == 201


async def test_a_run_whose_server_ends_before_it_starts_holds_its_ceiling_that_day() -> None:
    clock = ManualClock()
    spending = Spending(Limits(tenant=Quota(day=Budget(tokens=100))), clock=clock)
    async with Engine("memory:", agents=[agent_of(1)]) as engine:
        async with spending.admitted(engine, ACME, "never started", Budget(tokens=60)):
            pass
        with pytest.raises(Problem, match="open runs hold 60; choose a budget of at most 40"):
            async with spending.admitted(engine, ACME, "another", Budget(tokens=60)):
                pass
        clock.advance(DAY_S)
        async with spending.admitted(engine, ACME, "another", Budget(tokens=60)):
            pass


async def test_clocks_of_two_servers_may_differ_when_a_day_ends() -> None:
    ahead, behind = ManualClock(), ManualClock()
    ahead.advance(DAY_S + 1)
    behind.advance(DAY_S - 1)
    limits = Limits(server=Quota(day=Budget(tokens=100)))
    async with Engine("memory:", agents=[agent_of(1)]) as engine:
        async with Spending(limits, clock=ahead).admitted(engine, ACME, "a", Budget(tokens=60)):
            pass
        with pytest.raises(Problem, match="open runs hold 60"):
            async with Spending(limits, clock=behind).admitted(
                engine, ACME, "b", Budget(tokens=60)
            ):
                pass


class Day:
    """Runs of one day that start, repeat and end in any order, over servers that come and go."""

    def __init__(self, seed: int, waiting: Engine, working: Engine) -> None:
        self.random, self.waiting, self.working = Random(seed), waiting, working
        self.clock = ManualClock()
        self.used, self.refused = 0, 0
        self.open: dict[str, tuple[int, int]] = {}
        self.restart()

    def restart(self) -> None:
        limits = Limits(tenant=Quota(day=Budget(tokens=100)))
        self.spending = Spending(limits, clock=self.clock)

    async def end(self) -> None:
        if self.open:
            run_id = self.random.choice(list(self.open))
            await self.working.run(run_id).result()
            self.used += self.open.pop(run_id)[1]

    async def start(self, key: str) -> None:
        own, spends = self.random.choice([None, 5, 20, 60]), self.random.randrange(1, 25)
        held = sum(hold for hold, _ in self.open.values())
        run_id, budget = start_id(self.waiting, key, "acme"), Budget(tokens=own)
        if self.used + held + (own or 1) > 100:
            with pytest.raises(Problem, match=f"{self.used} are spent, open runs hold {held}"):
                await self.admit(run_id, key, budget, spends)
            self.refused += 1
            return
        for _ in range(self.random.choice([1, 2])):  # as a client that repeats it
            await self.admit(run_id, key, budget, spends)
        self.open[run_id] = own or 0, spends

    async def admit(self, run_id: str, key: str, budget: Budget, spends: int) -> None:
        async with self.spending.admitted(self.waiting, ACME, run_id, budget):
            await self.waiting.start(str(spends), idempotency_key=key, tenant="acme", budget=budget)


async def test_every_run_that_fits_is_admitted_and_no_other() -> None:
    model = FunctionClient(
        lambda messages: Reply((Text("x"),), usage=Usage(input_tokens=int(messages[-1].text)))
    )
    agents = [Agent(model, name="a")]
    for seed in range(20):
        store = MemoryEventStore()
        async with (
            Engine(store, agents=agents, drive=False) as waiting,
            Engine(store, agents=agents) as working,
        ):
            day = Day(seed, waiting, working)
            for step in range(60):
                match day.random.randrange(6):
                    case 0:
                        day.restart()
                    case 1 | 2:
                        await day.end()
                    case _:
                        await day.start(f"{step}")

        assert day.used > 50
        assert day.refused


async def test_turns_of_sessions_count() -> None:
    quota = Quota(run=Budget(tokens=60), day=Budget(tokens=100))
    server = Server(agent_of(50), auth=OneKey(), limits=Limits(tenant=quota), clock=ManualClock())
    async with serving(server, headers=as_("acme")) as up:
        session = (await up.client.post("/v1/sessions", json={})).json()
        path = f"/v1/sessions/{session['id']}/messages"
        first = await up.client.post(path, json={"input": "hi", "key": "a"})
        run_path = f"/v1/runs/{first.json()['run_id']}/events"
        await up.client.get(run_path, headers={"accept": "text/event-stream"})
        again = await up.client.post(path, json={"input": "hi", "key": "a"})
        second = await up.client.post(path, json={"input": "hi", "key": "b"})
        run = await start(up.client, budget={"tokens": 50})

    assert (first.status_code, again.status_code) == (202, 202)
    assert (second.status_code, second.json()["spent"]) == (429, 50)
    assert run.status_code == 201


async def test_the_shapes_of_other_clients_count() -> None:
    limits = Limits(server=Quota(day=Budget(llm_calls=1)))
    server = Server(agent_of(1, name="quick"), limits=limits, clock=ManualClock())
    body = {"model": "quick", "messages": [{"role": "user", "content": "hi"}]}
    async with serving(server) as up:
        first = await up.client.post("/v1/chat/completions", json=body)
        second = await up.client.post("/v1/chat/completions", json=body)

    assert first.status_code == 200
    assert (second.status_code, second.json()["error"]["code"]) == (429, "budget_spent")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)  # blocks, so outside of an event loop


@pytest.fixture
def stores(store_url: str) -> list[EventStore]:
    return [open_store(store_url) for _ in range(2)]  # imports drivers, which blocks


async def test_servers_of_one_store_admit_no_more_than_fits(stores: list[EventStore]) -> None:
    gate, clock = Gate(), ManualClock()
    quota = Quota(run=Budget(tokens=10), day=Budget(tokens=55))
    async with AsyncExitStack() as stack:
        ups = [
            await stack.enter_async_context(
                serving(
                    Server(
                        Engine(store, agents=[agent_of(10, gate)]),
                        auth=OneKey(),
                        limits=Limits(tenant=quota),
                        clock=clock,
                    )
                )
            )
            for store in stores
        ]
        burst = await asyncio.gather(*(start(up.client) for up in ups * 10))
        gate.open.set()
        for each in burst:
            if each.status_code == 201:
                path = f"/v1/runs/{each.json()['id']}/result?wait_s=60"
                await ups[0].client.get(path, headers=as_("acme"))
        after = [await start(up.client) for up in ups]

    assert sorted(each.status_code for each in burst) == [201] * 5 + [429] * 15
    assert [each.status_code for each in after] == [429, 429]
    assert [each.json()["spent"] for each in after] == [50, 50]


async def test_processes_count_together_and_a_restart_forgets_nothing(
    store_url: str, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("[server]\nday = { llm_calls = 3 }\n", encoding="utf-8")

    async def run_of(client: httpx2.AsyncClient) -> tuple[int, str]:
        answer = await run(client)
        return answer.status_code, answer.json().get("code", "")

    options = ("--limits", str(limits))
    async with (
        serving_process(store_url, *options) as one,
        serving_process(store_url, *options) as two,
    ):
        before = [await run_of(each.client) for each in (one, two, one)]
        above = [await run_of(each.client) for each in (one, two)]
    async with serving_process(store_url, *options) as again:
        later = await run_of(again.client)

    assert [status for status, _ in before] == [201] * 3
    assert above == [(429, "budget_spent")] * 2
    assert later == (429, "budget_spent")
