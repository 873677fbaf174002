"""Processes that share a rate limiter in a store take no more than its limit together."""

import asyncio
import sys
from pathlib import Path

import pytest

from lib.errors import RateLimited
from lib.events import open_store
from lib.resilience import RateLimiter
from servers import postgres, redis

CALLER = """
import asyncio, sys
from lib.errors import RateLimited
from lib.events import open_store
from lib.resilience import RateLimiter

async def main(url):
    store = open_store(url)
    await store.setup()
    try:
        limiter = RateLimiter("gpt", requests_per_minute=20, max_wait_s=0.0, store=store)
        async def granted():
            try:
                await limiter.acquire(10)
            except RateLimited:
                return False
            return True
        print(sum(await asyncio.gather(*(granted() for _ in range(15)))))
    finally:
        await store.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_two_processes_take_no_more_than_one_limit(kind: str, tmp_path: Path) -> None:
    url = _url(kind, tmp_path)

    async def main() -> tuple[int, int]:
        store = open_store(url)
        await store.setup()  # its tables are there

        async def process() -> int:
            caller = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CALLER, url, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await caller.communicate()
            return int(output)

        taken = await asyncio.gather(process(), process())
        limiter = RateLimiter("gpt", requests_per_minute=20, max_wait_s=0.0, store=store)
        with pytest.raises(RateLimited):  # a minute has not passed
            await limiter.acquire()
        await store.close()
        return taken

    taken = asyncio.run(main())

    assert sum(taken) == 20
    assert max(taken) <= 15


def _url(kind: str, place: Path) -> str:
    match kind:
        case "postgres":
            schema, url = postgres.schema_of(place), postgres.url()
            return f"{url}{'&' if '?' in url else '?'}schema={schema}"
        case "redis":
            return f"{redis.url()}?prefix={redis.prefix_of(place)}"
        case _:
            return str(place / "runs.db")
