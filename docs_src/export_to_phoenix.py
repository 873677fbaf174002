import asyncio

from lib.evals import Score
from lib.llm import ScriptedClient
from lib.observe import Observer, PhoenixSink
from lib.testing.agents import make_engine
from lib.testing.trace_servers import PhoenixServer


async def main() -> None:
    async with PhoenixServer() as phoenix:  # stands in for yours
        sink = PhoenixSink(phoenix.url, "support")
        model = ScriptedClient(["You can return it within 30 days."])
        async with make_engine(model) as engine:
            async with Observer(engine, sink, settle_s=0) as observer:
                run = await engine.start("How long can I return it?")
                await run.result()
                await observer.drain()

            thumbs = Score(name="helpful", value=0.8, source="human", comment="quick and clear")
            await run.score(thumbs, signal_id="feedback-7")
            async with Observer(engine, sink) as observer:
                for _ in range(2):  # a second time sends nothing
                    await observer.export_trace(run.id)
        await sink.aclose()

        print([span.name for span in phoenix.spans])
        for annotation in phoenix.annotations.values():
            print(annotation["name"], annotation["annotator_kind"], annotation["result"])
        print(b"30 days" in phoenix.received, b"quick" in phoenix.received)


asyncio.run(main())
