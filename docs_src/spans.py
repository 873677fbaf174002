import asyncio

from lib import Agent, tool
from lib.events import kinds
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import Span, span_id_of, spans_from_events


@tool(effects="none")
async def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: a greeting"


async def main() -> None:
    call = ToolCall("c1", "look_up", {"word": "hello"})
    model = ScriptedClient([Reply((call,)), "It is a greeting."])
    async with Agent(model, tools=[look_up]).engine() as engine:
        run = await engine.start("What does hello mean?")
        await run.result()
        judged = span_id_of(run.id, "tool", "tool/1/c1")
        score = {"name": "useful", "value": 0.9, "comment": "to me", "span_id": judged}
        await engine.signal(run.id, kinds.EVAL_SCORE, score)
        log = await engine.store.read(run.id)

    before: dict[str, Span] = {}
    for event in log:
        spans = {span.span_id: span for span in spans_from_events(log[: event.seq])}
        for span in spans.values():
            old = before.get(span.span_id)
            if old is None:
                under = f" under {spans[span.parent_id].name}" if span.parent_id else ""
                print(event.kind, "begins", span.name + under)
            if span.end is not None and (old is None or old.end is None):
                print(event.kind, "ends", span.name)
        before = spans


asyncio.run(main())
