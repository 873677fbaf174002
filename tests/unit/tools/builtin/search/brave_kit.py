"""Shared by tests of Brave Search: a server, a clock that passes as one sleeps, refusals."""

from collections.abc import Sequence
from typing import Any

from fakes.search_server import API_KEY, BraveServer, WebPage
from lib.errors import ToolError
from lib.testing.clock import ManualClock
from lib.testing.http import Reaction
from lib.tools.builtin import BraveSearchProvider

JSON = {"content-type": "application/json"}
PAGES = [
    WebPage(url="https://rust.example/book", title="Rust & you", text="Rust isn't iron <oxide>."),
    WebPage(url="https://oxide.example/", title="Oxide", text="Of rust.", published="2026-01-01"),
]


class SteppingClock(ManualClock):
    """Time passes as one sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.advance(delay_s)


async def served(
    queries: Sequence[str] = ("rust",),
    *,
    script: Sequence[Reaction | None] = (),
    api_key: str = API_KEY,
    per_second: int = 20,
    per_month: int = 2_000,
    max_results: int = 5,
    clock: SteppingClock | None = None,
    **options: Any,
) -> tuple[list[Any], BraveServer]:
    clock = clock or SteppingClock()

    async def main() -> tuple[list[Any], BraveServer]:
        found: list[Any] = []
        limits = {"per_second": per_second, "per_month": per_month}
        async with BraveServer(PAGES, **limits, clock=clock) as server:
            server.script.extend(script)
            provider = BraveSearchProvider(
                api_key, base_url=server.base_url, clock=clock, **options
            )
            for query in queries:
                try:
                    found.append(list(await provider.search(query, max_results=max_results)))
                except ToolError as error:
                    found.append(error)
            await provider.aclose()
        return found, server

    return await main()


async def refusal(
    *script: Reaction | None, queries: Sequence[str] = ("rust",), **options: Any
) -> ToolError:
    found, _ = await served(queries, script=script, **options)
    error = found[-1]
    assert isinstance(error, ToolError)
    assert error.__cause__ is None
    assert API_KEY not in f"{error} {error.__context__!r}"
    return error
