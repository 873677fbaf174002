"""The model that finds facts is called as those of runs: retried, replaced, guarded, counted."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from lib import Agent
from lib.errors import LLMError
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.guards import GuardContent, Stage, Verdict
from lib.llm import FunctionClient, Message, Reply, Text, Usage
from lib.memory import Memory, ModelExtractor
from lib.observe.spend import spend_of
from lib.resilience import RetryPolicy

ANN: dict[str, Any] = {"tenant": "acme", "user": "ann"}
AT_ONCE = RetryPolicy(attempts=2, base_s=0)
FACT: dict[str, Any] = {
    "text": "The user lives in Berlin.",
    "key": "home",
    "quote": "I live in Berlin",
    "confidence": 0.9,
    "same_as": 0,
    "replaces": [],
    "until": "",
}
FACTS = json.dumps({"facts": [FACT]})
USED = Usage(input_tokens=10, output_tokens=5)


class Shared(MemoryEventStore):
    """A store that outlives the engines on it."""

    async def close(self) -> None:
        pass


class Model(FunctionClient):
    """Answers the user, and gives its script to extractors."""

    def __init__(self, *script: str | Exception, name: str = "big") -> None:
        super().__init__(self._answer)
        self.model = name
        self.provider = "here"
        self._script = list(script)

    def _answer(self, messages: Sequence[Message]) -> Reply:
        if not messages[0].text.startswith("You keep the memory"):
            return Reply((Text("ok"),), usage=USED)
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Reply((Text(answer),), usage=USED)


class Cents:
    """A cent a call of the small model."""

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        return Decimal("0.01") if (provider, model) == ("here", "small") else None


async def remembered(agent: Agent, text: str = "I live in Berlin.") -> tuple[Event, Any]:
    """Return the end of what the memory did in a run, and the run's result."""
    store = Shared()
    result = await agent.run(text, store=store, **ANN)
    log = await store.read(result.run_id)
    [*_, last] = [each for each in log if each.kind in (k.MEMORY_COMPLETED, k.MEMORY_FAILED)]
    assert result.outcome == "COMPLETED"
    read = spend_of(log).total
    assert read.input_tokens + read.output_tokens == result.spend.tokens
    return last, result


def found(event: Event) -> list[str]:
    return [record["text"] for record in event.data.get("records", ())]


async def test_a_failed_attempt_is_repeated() -> None:
    model = Model(LLMError("busy", status=529, retryable=True), FACTS)

    last, result = await remembered(Agent(model, memory=Memory("memory:"), retries=AT_ONCE))

    assert found(last) == ["The user lives in Berlin."]
    assert last.data["attempts"] == 2
    assert (last.data["model"], last.data["provider"]) == ("big", "here")
    assert result.spend.tokens == 30


async def test_another_model_of_the_agent_takes_its_place() -> None:
    model = Model(*[LLMError("down", status=500, retryable=True)] * 2)
    second = Model(FACTS, name="second")

    last, _ = await remembered(Agent([model, second], memory=Memory("memory:"), retries=AT_ONCE))

    assert found(last) == ["The user lives in Berlin."]
    assert [each["model"] for each in last.data["failed_models"]] == ["big"]
    assert last.data["model"] == "second"


async def test_a_reply_that_does_not_fit_is_counted() -> None:
    last, result = await remembered(Agent(Model("not JSON"), memory=Memory("memory:")))

    assert last.kind == k.MEMORY_FAILED
    assert last.data["error"]["type"] == "InvalidReply"
    assert last.data["usage"] == {"input_tokens": 10, "output_tokens": 5}
    assert last.data["model"] == "big"
    assert result.spend.tokens == 30


async def test_a_call_that_fails_for_good_says_how_often_it_was_made() -> None:
    model = Model(*[LLMError("down", status=500, retryable=True)] * 2)

    last, result = await remembered(Agent(model, memory=Memory("memory:"), retries=AT_ONCE))

    assert last.kind == k.MEMORY_FAILED
    assert (last.data["error"], last.data["attempts"]) == (
        {"type": "LLMError", "message": "down"},
        2,
    )
    assert result.spend.tokens == 15


async def test_an_extractors_own_model_is_retried_and_priced_as_well() -> None:
    small = Model(LLMError("busy", retryable=True), FACTS, name="small")
    memory = Memory("memory:", extractor=ModelExtractor(small))

    agent = Agent(Model(), memory=memory, retries=AT_ONCE, prices=Cents())
    last, result = await remembered(agent)

    assert found(last) == ["The user lives in Berlin."]
    assert (last.data["model"], last.data["attempts"]) == ("small", 2)
    assert last.data["usage"]["cost"] == result.spend.cost == 0.01


async def test_guards_see_what_it_replies_and_what_they_block_is_counted() -> None:
    class NoFacts:
        """Blocks replies with facts."""

        name = "no-facts"
        stages: frozenset[Stage] = frozenset({"output"})

        async def check(self, content: GuardContent) -> Verdict:
            return Verdict(allowed="facts" not in content.text)

    agent = Agent(Model(FACTS), memory=Memory("memory:"), guards=[NoFacts()])
    last, result = await remembered(agent)

    assert last.kind == k.MEMORY_FAILED
    assert "no-facts" in last.data["error"]["message"]
    assert result.spend.tokens == 30
