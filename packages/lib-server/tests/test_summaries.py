"""Runs in short, in lists and summed up by day: read once, exact, and of one's own tenant."""

import asyncio
from datetime import timedelta
from typing import Any, TypeVar

from server_kit import OneKey, as_, serving

from lib import Agent, Engine
from lib.events import Event, EventStore, MemoryEventStore, NewEvent, RunQuery
from lib.events import kinds as k
from lib.llm import FunctionClient
from lib.testing.clock import ManualClock
from lib_server import Server
from lib_server.summaries import Summaries

AT = ManualClock().now()
S = TypeVar("S", bound=MemoryEventStore)


class Counting(MemoryEventStore):
    """A store that counts how often logs are read."""

    reads = 0

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self.reads += 1
        return await super().read(run_id, after=after, limit=limit)


async def set_up(store: S) -> S:
    await store.setup()
    return store


def begun(words: str, agent: str = "clerk", days: int = 0) -> list[NewEvent]:
    at = AT + timedelta(days=days)
    message = {"role": "user", "content": words}
    return [NewEvent(k.RUN_STARTED, {"algorithm": agent, "input": [message]}, at)]


def called(number: int, tokens: int, cost: float | None, model: str = "m") -> list[NewEvent]:
    key = f"llm/{number}"
    usage: dict[str, Any] = {"input_tokens": tokens, "output_tokens": 1, "cost": cost}
    reply = {"parts": [{"type": "text", "text": "yes"}], "usage": usage, "model": model}
    return [
        NewEvent(k.LLM_REQUESTED, {"key": key, "messages": [], "model": model}, AT),
        NewEvent(k.LLM_COMPLETED, {"key": key, "reply": reply}, AT),
    ]


ENDED = [NewEvent(k.RUN_COMPLETED, {"outcome": "COMPLETED"}, AT)]


def engine_of(store: EventStore) -> Engine:
    agent = Agent(FunctionClient(lambda _: ""), name="clerk")
    return Engine(store, agents=[agent], drive=False, clock=ManualClock(AT + timedelta(days=3)))


async def test_a_log_is_read_once_and_then_only_what_has_come_since() -> None:
    store = await set_up(Counting())
    await store.append("open", [*begun("Where is it?"), *called(1, 9, 0.5)], expected=0)
    await store.append("done", [*begun("x"), *called(1, 4, 0.25), *ENDED], expected=0)
    summaries = Summaries(store)

    async def both() -> list[tuple[str, int, float | None]]:
        found = [await summaries.of(info) for info in await store.runs(RunQuery())]
        return [(each.question, each.tokens, each.cost) for each in found]

    first, reads = await both(), store.reads
    again, reads_again = await both(), store.reads
    await store.append("open", called(2, 9, None), expected=3)
    await store.append("done", [NewEvent(k.EVAL_SCORE, {"name": "a", "value": 1}, AT)], expected=4)
    later, reads_later = await both(), store.reads

    assert first == [("Where is it?", 10, 0.5), ("x", 5, 0.25)]
    assert (again, reads_again) == (first, reads)
    assert later == [("Where is it?", 20, None), ("x", 5, 0.25)]
    assert reads_later == reads + 1


async def test_memory_holds_so_many_runs_and_no_more() -> None:
    store = await set_up(Counting())
    for number in range(4):
        await store.append(f"run-{number}", [*begun("x"), *ENDED], expected=0)
    summaries = Summaries(store, most=2)
    infos = await store.runs(RunQuery())

    for info in infos:
        await summaries.of(info)

    kept = [summaries.kept(info) is not None for info in infos]
    assert kept == [False, False, True, True]


async def test_a_list_can_be_of_runs_that_cost_so_much() -> None:
    store = await set_up(MemoryEventStore())
    for number in range(5):
        log = [*begun(f"{number}"), *called(1, 9, number / 4), *ENDED]
        await store.append(f"run-{number}", log, expected=0)
    await store.append("part", [*begun("p"), *called(1, 9, 9.0), *called(2, 9, None)], expected=0)
    async with serving(Server(engine_of(store))) as up:

        async def listed(query: str) -> tuple[list[str], str | None]:
            page = (await up.client.get(f"/v1/runs?order=oldest&{query}")).json()
            return [run["id"] for run in page["runs"]], page["next_cursor"]

        found = await listed("min_cost=0.5")
        first = await listed("min_cost=0.5&limit=2")
        second = await listed("min_cost=0.5&limit=2&cursor=run-3")
        wrong = await up.client.get("/v1/runs?min_cost=-1")

    assert found == (["run-2", "run-3", "run-4", "part"], None)
    assert first == (["run-2", "run-3"], "run-3")
    assert second == (["run-4", "part"], "part")
    assert wrong.status_code == 422


async def test_first_words_are_one_short_line() -> None:
    store = await set_up(MemoryEventStore())
    parts = [
        {"type": "text", "text": "a\nb"},
        {"type": "file", "data": "aGk=", "media_type": "a/b"},
    ]
    messages = [{"role": "user", "parts": parts}, {"role": "assistant", "content": "no"}]
    await store.append(
        "parts", [NewEvent(k.RUN_STARTED, {"algorithm": "a", "input": messages}, AT)], expected=0
    )
    await store.append("long", begun("word " * 100_000), expected=0)
    await store.append("none", [NewEvent(k.RUN_STARTED, {"algorithm": "a"}, AT)], expected=0)
    summaries = Summaries(store)

    found = [(await summaries.of(info)).question for info in await store.runs(RunQuery())]

    assert found[0] == "a b"
    assert len(found[1]) <= 200
    assert found[2] == ""


async def test_a_list_holds_summaries_if_they_are_wanted() -> None:
    store = await set_up(MemoryEventStore())
    await store.append("run", [*begun("Where?"), *called(1, 9, 0.5), *ENDED], expected=0)
    async with serving(Server(engine_of(store))) as up:
        plain = (await up.client.get("/v1/runs")).json()["runs"]
        short = (await up.client.get("/v1/runs?summary=true")).json()["runs"]

    assert [each["summary"] for each in plain] == [None]
    assert [each["summary"] for each in short] == [
        {"question": "Where?", "tokens": 10, "cost": 0.5}
    ]


async def test_spend_is_summed_up_by_day_and_group() -> None:
    store = await set_up(MemoryEventStore())
    await store.append("a", [*begun("x"), *called(1, 9, 0.1), *ENDED], expected=0)
    log = [*begun("x", days=1), *called(1, 9, 0.2), *called(2, 19, None, "n"), *ENDED]
    await store.append("b", log, expected=0)
    await store.append("c", [*begun("x", "cook", 1), *ENDED], expected=0)
    async with serving(Server(engine_of(store))) as up:

        async def summed(by: str) -> list[list[tuple[Any, ...]]]:
            body = (await up.client.get(f"/v1/spend?by={by}")).json()
            assert (body["runs"], body["missing"], body["truncated"]) == (3, 0, False)
            names = ("name", "runs", "tokens", "cost", "unpriced")
            return [
                sorted(tuple(group[name] for name in names) for group in day["groups"])
                for day in body["days"]
            ]

        by_agent, by_model = await summed("agent"), await summed("model")

    first = ("clerk", 1, 10, 0.1, 0)
    assert by_agent == [[first], [("clerk", 1, 30, 0.2, 1), ("cook", 1, 0, 0.0, 0)]]
    assert by_model == [[("m", 1, 10, 0.1, 0)], [("m", 1, 10, 0.2, 0), ("n", 1, 20, 0.0, 1)]]


async def test_spend_reads_so_many_logs_at_once_and_says_how_many_are_left() -> None:
    store = await set_up(Counting())
    for number in range(520):
        await store.append(f"run-{number}", [*begun("x", f"a{number % 60}"), *ENDED], expected=0)
    async with serving(Server(engine_of(store))) as up:
        first = (await up.client.get("/v1/spend")).json()
        second = (await up.client.get("/v1/spend")).json()

    assert (first["runs"], first["missing"]) == (500, 20)
    assert (second["runs"], second["missing"]) == (520, 0)
    [day] = second["days"]
    assert len(day["groups"]) == 51
    assert [each["rest"] for each in day["groups"]].count(True) == 1
    assert sum(each["runs"] for each in day["groups"]) == 520


async def test_spend_takes_a_span_of_some_months_at_most() -> None:
    spans = [
        "since=2020-01-01T00:00:00Z",
        "since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z",
        "since=2026-02-01T00:00:00",
        "by=weather",
        "until=9999-12-31T23:59:59%2B00:00",
    ]
    async with serving(Server(engine_of(await set_up(MemoryEventStore())))) as up:
        answers = [await up.client.get(f"/v1/spend?{span}") for span in spans]
        early = await up.client.get("/v1/spend?until=0001-01-02T00:00:00Z")

    assert [each.status_code for each in answers[:4]] == [422] * 4
    assert answers[4].status_code == 200
    assert early.status_code == 422


async def test_a_tenant_sums_up_its_own_runs() -> None:
    agent = Agent(FunctionClient(lambda _: "yes"), name="clerk")
    async with serving(Server(agent, auth=OneKey())) as up:
        for tenant in ("acme", "acme", "umbrella"):
            await up.client.post("/v1/runs", json={"input": tenant}, headers=as_(tenant))
        requests = [
            up.client.get("/v1/spend?by=tenant", headers=as_(t)) for t in ("acme", "umbrella")
        ]
        found = [answer.json() for answer in await asyncio.gather(*requests)]
        listed = await up.client.get("/v1/runs?summary=true", headers=as_("umbrella"))

    names = [[g["name"] for day in each["days"] for g in day["groups"]] for each in found]
    assert names == [["acme"], ["umbrella"]]
    assert [each["runs"] for each in found] == [2, 1]
    assert [each["summary"]["question"] for each in listed.json()["runs"]] == ["umbrella"]
