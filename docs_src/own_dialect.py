import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lib import Agent
from lib.errors import ExportError
from lib.llm import ScriptedClient
from lib.observe import Dialect, Observer, SinkTraits, Span
from lib.observe.dialects import COMMON, TableDialect


def level(span: Span) -> Mapping[str, Any]:
    return {"house.level": "warning" if span.status == "error" else "info"}


HOUSE = TableDialect(
    name="the house's own",
    kind="house.kind",
    kinds={
        **dict.fromkeys(("agent", "session", "workflow"), "job"),
        **dict.fromkeys(("llm", "embedding", "reranker", "retriever"), "remote"),
        **dict.fromkeys(("tool", "memory"), "call"),
        **dict.fromkeys(("guardrail", "evaluator", "internal"), "step"),
    },
    names={
        **COMMON,
        "lib.tenant": ("lib.tenant", "house.customer"),
        "gen_ai.usage.input_tokens": ("house.tokens.in",),
        "gen_ai.usage.output_tokens": ("house.tokens.out",),
        "lib.key": (),  # not sent
    },
    facts=[level],
)


class LinesSink:
    """Writes one line of JSON a span."""

    traits = SinkTraits(destination="stdout", updates="first")  # each span once, when it ends

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    async def export(self, spans: Sequence[Span]) -> None:
        for span in spans:
            attributes = self.dialect.attributes(span)
            line = {name: attributes[name] for name in attributes if name.startswith("house.")}
            try:
                print(span.name, json.dumps(line))
            except OSError as error:
                raise ExportError("standard output is closed", permanent=True) from error


async def main() -> None:
    async with (
        Agent(ScriptedClient(["Hello."])).engine() as engine,
        Observer(engine, LinesSink(HOUSE), settle_s=0) as observer,
    ):
        run = await engine.start("Hi!", tenant="acme")
        await run.result()
        await observer.drain()


asyncio.run(main())
