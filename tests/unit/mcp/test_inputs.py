"""A call asks its client, and what comes back counts for this caller, this call, and once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)
from pydantic import BaseModel

from lib import tool
from lib.mcp import Caller, MCPToolServer, ask, form, prompt
from lib.testing.clock import ManualClock

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
YES = ElicitResult(action="accept", content={"approve": True})


class Amount(BaseModel):
    amount: int


class Shop:
    """A server whose payments must be approved, and a client with a person behind it."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.payments: list[int] = []
        self.questions: list[str] = []
        self.user = "ada"
        self.clock = ManualClock()
        self._answers = list(answers)

        @tool(approval=lambda arguments: arguments["amount"] > 10)
        def pay(amount: int) -> str:
            """Pay."""
            self.payments.append(amount)
            return f"paid {amount}"

        @tool
        def refund() -> str:
            """Ask for an amount, then for another one."""
            first: Any = ask(first=form("How much?", Amount))["first"]
            second: Any = ask(second=form("And?", Amount))["second"]
            if second.action != "accept":
                return "nothing"
            return f"{first.content['amount']} and {second.content['amount']}"

        @prompt
        def opening() -> str:
            """Ask."""
            answer: Any = ask(first=form("How much?", Amount))["first"]
            return f"It was {answer.content['amount']}."

        self.server = MCPToolServer(
            [pay, refund],
            prompts=[opening],
            caller=lambda _: Caller(user=self.user),
            clock=self.clock,
        )

    async def _answer(self, context: Any, params: Any) -> ElicitResult:
        self.questions.append(params.message)
        return self._answers.pop(0)

    @asynccontextmanager
    async def client(self, mode: str = "auto") -> AsyncGenerator[Client]:
        async with (
            self.server,
            Client(self.server.protocol, mode=mode, elicitation_callback=self._answer) as client,
        ):
            yield client


def text(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


def accept(amount: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"amount": amount})


async def question(client: Client, amount: int = 20, **options: Any) -> InputRequiredResult:
    """Return the question about a payment."""
    result = await client.session.call_tool(
        "pay", {"amount": amount}, allow_input_required=True, **options
    )
    assert isinstance(result, InputRequiredResult)
    return result


@MODES
async def test_a_call_is_made_once_a_person_has_approved_it(mode: str) -> None:
    shop = Shop(YES)
    async with shop.client(mode) as client:
        result = await client.call_tool("pay", {"amount": 20})

    assert (text(result), shop.payments) == ("paid 20", [20])
    assert shop.questions == ["Allow the call of 'pay' with {\"amount\":20}?"]


@MODES
@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="accept", content={"approve": False}),
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
    ],
)
async def test_a_call_that_a_person_refuses_is_not_made(mode: str, answer: ElicitResult) -> None:
    shop = Shop(answer)
    async with shop.client(mode) as client:
        result = await client.call_tool("pay", {"amount": 20})

    assert (result.is_error, text(result), shop.payments) == (
        True,
        "not called: a person has refused it",
        [],
    )


async def test_a_call_below_the_rule_asks_nothing() -> None:
    shop = Shop()
    async with shop.client() as client:
        await client.call_tool("pay", {"amount": 10})

    assert (shop.payments, shop.questions) == ([10], [])


async def test_an_approval_without_its_question_does_not_count() -> None:
    shop = Shop()
    async with shop.client() as client:
        again = await question(client, input_responses={"approval": YES})

    assert (list(again.input_requests or {}), shop.payments) == (["approval"], [])


async def test_an_approval_counts_for_its_arguments_and_its_caller_alone() -> None:
    shop = Shop()
    async with shop.client() as client:
        state = (await question(client)).request_state
        with pytest.raises(MCPError) as other_arguments:
            await question(client, 30, input_responses={"approval": YES}, request_state=state)
        shop.user = "eve"
        with pytest.raises(MCPError) as other_caller:
            await question(client, 20, input_responses={"approval": YES}, request_state=state)

    assert [each.value.code for each in (other_arguments, other_caller)] == [INVALID_PARAMS] * 2
    assert shop.payments == []


async def test_an_approval_counts_once() -> None:
    shop = Shop()
    async with shop.client() as client:
        state = (await question(client)).request_state
        retry: dict[str, Any] = {"input_responses": {"approval": YES}, "request_state": state}
        await client.session.call_tool("pay", {"amount": 20}, **retry)
        with pytest.raises(MCPError) as again:
            await client.session.call_tool("pay", {"amount": 20}, **retry)

    assert (again.value.code, shop.payments) == (INVALID_PARAMS, [20])


async def test_an_approval_counts_for_a_time() -> None:
    shop = Shop()
    async with shop.client() as client:
        state = (await question(client)).request_state
        shop.clock.advance(601)
        with pytest.raises(MCPError) as late:
            await question(client, 20, input_responses={"approval": YES}, request_state=state)

    assert (late.value.code, shop.payments) == (INVALID_PARAMS, [])


@pytest.mark.parametrize("change", ["{0}x", "x{0}", "x", "", ".", "a.b", "{0}.{0}", "\u00e9.{0}"])
async def test_a_state_that_was_changed_is_refused(change: str) -> None:
    shop = Shop()
    async with shop.client() as client:
        state = change.format((await question(client)).request_state)
        with pytest.raises(MCPError) as caught:
            await question(client, 20, input_responses={"approval": YES}, request_state=state)

    assert (caught.value.code, shop.payments) == (INVALID_PARAMS, [])


@MODES
async def test_a_tool_asks_one_question_after_another(mode: str) -> None:
    shop = Shop(accept(1), accept(2))
    async with shop.client(mode) as client:
        result = await client.call_tool("refund", {})

    assert (text(result), shop.questions) == ("1 and 2", ["How much?", "And?"])


@MODES
async def test_a_question_with_an_answer_that_does_not_fit_is_repeated(mode: str) -> None:
    shop = Shop(accept("one"), accept(1), ElicitResult(action="decline"))
    async with shop.client(mode) as client:
        result = await client.call_tool("refund", {})

    assert (text(result), shop.questions) == ("nothing", ["How much?", "How much?", "And?"])


@MODES
async def test_a_prompt_asks_as_well(mode: str) -> None:
    shop = Shop(accept(3))
    async with shop.client(mode) as client:
        got = await client.get_prompt("opening")

    assert [each.content for each in got.messages] == [TextContent(text="It was 3.")]


async def test_a_client_that_answers_no_questions_gets_the_capability_that_it_lacks() -> None:
    shop = Shop()
    async with shop.server, Client(shop.server.protocol) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("refund", {})
        refused = await client.call_tool("pay", {"amount": 20})

    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {}}}
    assert (refused.is_error, shop.payments) == (True, [])


def test_a_form_takes_a_model_or_a_schema() -> None:
    schema = Amount.model_json_schema()

    assert form("How much?", Amount) == form("How much?", schema)
    assert isinstance(form("How much?", Amount), ElicitRequest)


def test_ask_outside_of_a_call_is_an_error() -> None:
    with pytest.raises(LookupError):
        ask(first=form("How much?", Amount))
