import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from lib import Agent
from lib.errors import ExportError
from lib.llm import ScriptedClient
from lib.observe import Observer, SinkTraits, Span


class JSONLinesSink:
    """Appends each finished span to a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.traits = SinkTraits(destination=f"jsonl {path}")  # what it has is stored under it

    async def export(self, spans: Sequence[Span]) -> None:
        try:
            await asyncio.to_thread(self._append, [span for span in spans if span.end])
        except OSError as error:
            raise ExportError(f"the file cannot be written: {error.strerror}") from error

    def _append(self, spans: Sequence[Span]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            for span in spans:
                shown = {"trace": span.trace_id, "span": span.span_id, "name": span.name}
                file.write(json.dumps(shown) + "\n")


async def main() -> None:
    path = Path("spans.jsonl")
    engine = Agent(ScriptedClient(["Hello."])).engine()
    async with engine, Observer(engine, JSONLinesSink(path)) as observer:
        run = await engine.start("Hi")
        await run.result()
        await observer.drain()
    for line in path.read_text(encoding="utf-8").splitlines():
        print(json.loads(line)["name"])


if __name__ == "__main__":
    asyncio.run(main())
