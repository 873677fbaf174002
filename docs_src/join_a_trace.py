import asyncio

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import Observer, OTelSink
from lib.tools import ToolContext

# What a web framework has found in the headers of a request.
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@tool(effects="none")
async def stock(item: str, context: ToolContext) -> str:
    """Ask the warehouse, a service of ours, how many there are."""
    headers = {"traceparent": context.traceparent}  # of the request to the warehouse
    print("the warehouse gets", headers)
    return f"7 of {item}"


async def main() -> None:
    for remote_parent in ("parent", "link"):
        print(f"remote_parent={remote_parent!r}")
        exporter = InMemorySpanExporter()
        sink = OTelSink(exporter, remote_parent=remote_parent)
        model = ScriptedClient([Reply((ToolCall("c1", "stock", {"item": "tea"}),)), "Seven."])
        agent = Agent(model, tools=[stock])
        async with (
            agent.engine(new_id=iter(["worker", "run-1"]).__next__) as engine,
            Observer(engine, sink, settle_s=0) as observer,
        ):
            run = await engine.start("How much tea is left?", traceparent=TRACEPARENT)
            await run.result()
            await observer.drain()
        for span in exporter.get_finished_spans():
            parent = f"{span.parent.span_id:016x}" if span.parent else "nothing"
            links = [f"{link.context.span_id:016x}" for link in span.links]
            own = span.get_span_context()
            assert own is not None
            print(f"  {own.trace_id:032x} {own.span_id:016x}", end=" ")
            print(f"{span.name} below {parent}", *(["with a link to", *links] if links else []))
        await sink.aclose()


asyncio.run(main())
