import asyncio

from lib import Agent
from lib.evals import Score
from lib.llm import ScriptedClient
from lib.observe import Observer, PhoenixSink
from lib.testing.http import HTTPServer, Request, Response


def accept(_: Request) -> Response:
    """Take whatever comes, as Phoenix takes spans and annotations."""
    return Response.of({"data": []})


async def main() -> None:
    async with HTTPServer({("POST", "/v1/"): accept}) as phoenix:  # stands in for yours
        sink = PhoenixSink(f"{phoenix.base_url}/v1/traces", "support")
        model = ScriptedClient(["You can return it within 30 days."])
        async with Agent(model).engine() as engine:
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

    spans, annotation = phoenix.requests
    print(spans.path, b"chat scripted" in spans.body, b"30 days" in spans.body)
    print(annotation.path, annotation.json()["data"][0]["result"], b"quick" in annotation.body)


asyncio.run(main())
