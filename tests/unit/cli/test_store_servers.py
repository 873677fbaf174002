"""`lib store` and `lib trace` look into stores on servers, too, and change nothing there."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from lib._util.clock import SYSTEM_CLOCK
from lib.cli import main
from lib.events import Event, open_store
from lib.events.store import LAYOUT_VERSION
from lib.events.urls import parse_store_url
from lib.testing.aio import run
from lib.testing.event_store.kit import all_events, begin
from servers import postgres, redis

SERVERS: dict[str, Callable[[], str]] = {
    "postgresql": postgres.fresh_url,
    "redis": lambda: redis.own_server().url,
}


@pytest.fixture(params=SERVERS.values(), ids=list(SERVERS))
def url(request: pytest.FixtureRequest) -> str:
    """An empty place for a store on a server."""
    return request.param()


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def made(url: str) -> list[Event]:
    async def body() -> list[Event]:
        store = open_store(url)
        await store.setup()
        await begin(store, "run-one", notes=2, end=True, tenant="acme", input=[])
        await begin(store, "run-two", input=[])
        events = await all_events(store)
        await store.close()
        return events

    return run(body())


def stored(url: str) -> list[Event]:
    async def body() -> list[Event]:
        store = open_store(url, read_only=True)
        await store.setup()
        events = await all_events(store)
        await store.close()
        return events

    return run(body())


def test_a_store_on_a_server_is_looked_into_by_its_url_and_not_made(url: str) -> None:
    absent = call("store", "check", url)
    log = made(url)
    check = call("store", "check", url, "--json")
    runs = call("store", "runs", url, "--json")
    events = call("store", "events", url, "run-one", "--json")
    verify = call("store", "verify", url)
    trace = call("trace", "run-o", "--store", url)

    assert absent.exit_code == 1
    assert "Traceback" not in absent.output
    facts = json.loads(check.stdout)
    assert (facts["layout"], facts["runs"], facts["events"]) == (LAYOUT_VERSION, 2, 5)
    assert facts["store"] == parse_store_url(url).display
    assert [json.loads(line)["run"] for line in runs.stdout.splitlines()] == ["run-two", "run-one"]
    assert len(events.stdout.splitlines()) == 4
    assert verify.stdout == "runs: 2, events: 5, faults: 0\n"
    assert (trace.exit_code, "run-one" in trace.stdout) == (0, True)
    assert stored(url) == log


def test_a_server_that_is_not_there_is_one_line_without_the_password() -> None:
    result = call("store", "check", "redis://me:secret@127.0.0.1:1/0")

    assert result.exit_code == 1
    assert "secret" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_what_the_class_of_a_store_refuses_is_a_wrong_call() -> None:
    result = call("store", "check", "redis://127.0.0.1:none/0")

    assert (result.exit_code, "Traceback" in result.output) == (2, False)


def test_a_lease_on_a_server_is_ended_and_others_take_over(url: str) -> None:
    async def held() -> None:
        store = open_store(url)
        await store.setup()
        await begin(store, "run-held", input=[])
        for _ in range(2):
            (lease,) = await store.claim("before", ttl_s=600, run_id="run-held")
            await store.release(lease)
        await store.claim("dead-worker", ttl_s=3600, run_id="run-held")
        await store.close()

    async def taken() -> tuple[bool, bool]:
        store = open_store(url)
        await store.setup()
        while not (leases := await store.claim("next", ttl_s=600, run_id="run-held")):
            await SYSTEM_CLOCK.sleep(0.01)  # the lease ends in a millisecond
        (lease,) = leases
        await store.release(lease)
        await store.close()
        return lease.takeover, lease.owner == "next"

    run(held())
    done = call("store", "unlock", url, "run-he", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("ended: the lease of run run-held, held by dead-worker until")
    assert run(taken()) == (True, True)
    none = call("store", "unlock", url, "run-held", "--yes")
    assert "no worker holds run 'run-held'" in none.stderr
