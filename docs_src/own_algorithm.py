import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from lib.engine import Engine, Finish, LLMHandler, LLMRequest, Wait
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, message_from_json, reply_from_json


class Drafts(NamedTuple):
    """The state: the question, what was written, and whether a model call failed."""

    question: tuple[Message, ...]
    texts: tuple[str, ...] = ()
    failed: str = ""


class Reviser:
    """Writes a draft, then reads it again and writes the answer."""

    name = "reviser"

    def config(self) -> dict[str, Any]:
        return {}  # nothing of an instance changes what it decides

    def initial(self, started: Event, history: Sequence[Message] = ()) -> Drafts:
        question = [message_from_json(message) for message in started.data["input"]]
        return Drafts((*history, *question))

    def evolve(self, state: Drafts, event: Event) -> Drafts:
        if event.kind == k.LLM_COMPLETED:
            return state._replace(texts=(*state.texts, reply_from_json(event.data["reply"]).text))
        if event.kind == k.LLM_FAILED:
            return state._replace(failed=event.data["error"]["message"])
        return state

    def decide(self, state: Drafts) -> Sequence[LLMRequest] | Finish | Wait:
        if state.failed:
            return Finish(outcome="FAILED", reason="model", error={"message": state.failed})
        if not state.texts:
            return [LLMRequest(key="draft", messages=state.question, tools=[])]
        if len(state.texts) == 1:
            draft = Message.assistant(state.texts[0])
            again = Message.user("Read it again, and write it better.")
            messages = [*state.question, draft, again]
            return [LLMRequest(key="answer", messages=messages, tools=[])]
        return Finish(outcome="COMPLETED", output=state.texts[-1])


def write(messages: Sequence[Message]) -> str:
    """Stand in for a model."""
    return "Dear Ada, thank you." if len(messages) > 1 else "thx ada"


async def main() -> None:
    handlers = [LLMHandler(FunctionClient(write))]
    async with Engine(MemoryEventStore(), handlers, algorithms=[Reviser()]) as engine:
        run = await engine.start("Thank Ada.")
        print((await run.result()).output)
        print([event.kind async for event in run.events()])


if __name__ == "__main__":
    asyncio.run(main())
