"""Definitions of tools are in the trace if content is captured."""

from collections.abc import Sequence
from typing import Any

from lib import Agent, Engine
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.observe import InMemorySink, Observer, spans_from_events
from lib.observe import attributes as a
from lib.privacy import PatternRedactor
from lib.testing.agents import make_engine
from lib.tools import Tool, tool


@tool(effects="none")
def look_up(word: str, limit: int = 3) -> str:
    """Look a word up; ask ann@example.com if it is not there."""
    return word


@tool
def refund(order: str) -> str:
    """Give the money back."""
    return order


NAMES = [{"type": "function", "name": each.name} for each in (look_up, refund)]


def output(each: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": each.name,
        "description": each.description,
        "parameters": each.input_schema,
    }


async def shown(
    *tools: Tool, later: Sequence[Tool] | None = None, redactor: Any = None, **options: Any
) -> Any:
    """Return what an observer shows of the tools of a run.

    Args:
        tools: of the engine that drives the run.
        later: of the engine that is observed; the same by default.
        redactor: of both.
        options: of the observer.
    """

    async def main() -> Any:
        model = ScriptedClient(["done"])
        async with make_engine(model, *tools, redactor=redactor) as engine:
            started = await engine.start("go")
            await started.result()
            other = make_engine(model, *(tools if later is None else later), redactor=redactor)
            engine.tool_definitions = other.tool_definitions
            sink = InMemorySink()
            settings: dict[str, Any] = {"capture_content": True, **options}
            async with Observer(engine, sink, **settings) as observer:
                await observer.export_trace(started.id)
        (call,) = [span for span in sink.spans if span.kind == "llm"]
        return call.attributes.get(a.TOOL_DEFINITIONS)

    return await main()


async def test_definitions_are_whole_if_content_is_captured():
    assert (await shown(look_up, refund)) == [output(look_up), output(refund)]
    assert (await shown(look_up, refund, capture_content=False)) is None
    assert (await shown()) is None


async def test_the_longest_parts_are_left_out_of_all_until_they_fit():
    described = [
        {"type": "function", "name": each.name, "description": each.description}
        for each in (look_up, refund)
    ]

    assert (await shown(look_up, refund, content_limit=300)) == described
    assert (await shown(look_up, refund, content_limit=100)) == NAMES
    assert (await shown(look_up, refund, content_limit=0)) is None


async def test_the_redactor_sees_definitions_before_a_sink_does():
    first, _ = await shown(look_up, refund, redactor=PatternRedactor())

    assert "ann@example.com" not in first["description"]
    assert first["parameters"] == look_up.input_schema


async def test_what_cannot_be_redacted_is_shown_by_name():
    class Failing:
        def redact(self, text: str) -> str:
            if "money" in text:
                raise RuntimeError("no")
            return text

    assert (await shown(look_up, refund, redactor=Failing())) == NAMES


async def test_tools_that_have_changed_since_are_shown_by_name():
    @tool(effects="none", name="look_up")
    def another(word: str) -> str:
        """Look a word up elsewhere."""
        return word

    assert (await shown(look_up, refund, later=[another, refund])) == NAMES
    assert (await shown(look_up, refund, later=[])) == NAMES
    assert (await shown(look_up, refund, later=[refund, look_up])) == NAMES  # in another order


async def test_a_log_alone_gives_names_of_tools():
    async with make_engine(ScriptedClient(["done"]), look_up, refund) as engine:
        started = await engine.start("go")
        await started.result()
        log = await engine.store.read(started.id)
    assert [event.data["tools"] for event in log if event.kind == k.LLM_REQUESTED]
    call = spans_from_events(log, capture_content=True)[1]
    assert call.attributes[a.TOOL_DEFINITIONS] == NAMES


async def test_the_definitions_of_an_agent_with_tools_of_its_own_are_shown():
    sink = InMemorySink()
    agents = [
        Agent(ScriptedClient(["ok"]), name=each.name, tools=[each]) for each in (look_up, refund)
    ]
    async with (
        Engine("memory:", agents=agents) as engine,
        Observer(engine, sink, capture_content=True),
    ):
        for agent in agents:
            await (await agent.start(engine, "go")).result()
    assert [span.attributes[a.TOOL_DEFINITIONS] for span in sink.spans if span.kind == "llm"] == [
        [output(look_up)],
        [output(refund)],
    ]
