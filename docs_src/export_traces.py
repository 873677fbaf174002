import asyncio

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lib import Agent, tool
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import Observer, OTelSink


@tool(effects="none")
async def weather(city: str) -> str:
    """Ask for the weather."""
    return f"sunny in {city}"


async def main() -> None:
    model = ScriptedClient([Reply((ToolCall("c1", "weather", {"city": "Bonn"}),)), "Sunny."])
    # Any exporter of OpenTelemetry will do; this one keeps spans, so that they can be shown.
    exporter = InMemorySpanExporter()
    sink = OTelSink(exporter, service_name="shop", resource_attributes={"service.version": "7"})
    async with (
        Agent(model, tools=[weather]).engine() as engine,
        Observer(engine, sink, settle_s=0) as observer,
    ):
        run = await engine.start("How is the weather in Bonn?", user="ann", tenant="acme")
        await run.result()
        await observer.drain()
    for span in exporter.get_finished_spans():
        attributes = dict(span.attributes or {})
        print(span.name, span.kind.name, attributes["lib.tenant"], attributes["user.id"])
        print("   sent:", *[name for name in attributes if name.startswith("gen_ai.")])
    await sink.aclose()


asyncio.run(main())
