"""The requested model is in the log before it answers, so that failures name it, too."""

from collections.abc import Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.errors import LLMError
from lib.events import Event
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply
from lib.observe import spans_from_events
from lib.observe.spend import ModelSpend, spend_of

from .run_kit import play


def fails(_messages: Sequence[Message]) -> Reply:
    raise LLMError("no answer", status=500)


@pytest.mark.parametrize(
    ("agent", "requested"),
    [(React(), "small"), (React(model="large"), "large")],
    ids=["own", "named"],
)
async def test_a_failed_call_names_the_requested_model(agent: React, requested: str) -> None:
    result, log = await play(FunctionClient(fails, model="small"), agent=agent)

    assert result.outcome == "FAILED"
    [request] = [event for event in log if event.kind == k.LLM_REQUESTED]
    assert request.data["model"] == requested
    assert spend_of(log).models == {requested: ModelSpend(failed=1)}
    [span] = [span for span in spans_from_events(log) if span.kind == "llm"]
    assert (span.name, span.attributes["gen_ai.request.model"]) == (f"chat {requested}", requested)


async def test_a_client_without_a_model_name_is_called() -> None:
    class Nameless(FunctionClient):
        def __init__(self) -> None:
            super().__init__(lambda _: "hi", model="")

    def models(log: Sequence[Event]) -> list[Any]:
        return [event.data.get("model") for event in log if event.kind == k.LLM_REQUESTED]

    result, log = await play(Nameless())
    assert (result.output, models(log)) == ("hi", [None])
