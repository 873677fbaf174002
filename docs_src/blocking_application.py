import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from lib import Agent, Result
from lib.llm import FunctionClient

T = TypeVar("T")
agent = Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"))


class BackgroundEngine:
    """An engine on an event loop of its own, for frameworks whose views block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._engine = agent.engine("runs.db")

    def __enter__(self) -> Self:
        self._thread.start()
        self.run_sync(self._engine.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run_sync(self._engine.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop; any number of threads may wait at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def ask(self, text: str) -> Result:
        async def work() -> Result:
            run = await agent.start(self._engine, text)
            return await run.result()

        return self.run_sync(work())


with BackgroundEngine() as engine:  # at the start of the application, not in a view
    print(engine.ask("Hello").output)
