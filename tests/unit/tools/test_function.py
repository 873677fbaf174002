from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from lib.tools import Tool, ToolContext, ToolError, tool

CONTEXT = ToolContext(run_id="r", call_id="c", idempotency_key="r:c", tenant="acme")


async def call(made: Tool, **arguments: Any) -> Any:
    async def main() -> Any:
        return await made.call(arguments, CONTEXT)

    return await main()


class Address(BaseModel):
    city: str


@tool
def ship(
    order: int,
    to: Address,
    speed: Literal["slow", "fast"] = "slow",
    note: Annotated[str, Field(description="printed on the box")] = "",
) -> str:
    """Ship an order."""
    return f"{order} to {to.city}, {speed}, {note!r}"


def test_a_typed_function_becomes_a_tool_with_a_schema_from_its_signature() -> None:
    assert (ship.name, ship.description, ship.effects) == ("ship", "Ship an order.", "once")
    assert ship.input_schema == {
        "$defs": {
            "Address": {
                "properties": {"city": {"title": "City", "type": "string"}},
                "required": ["city"],
                "title": "Address",
                "type": "object",
            }
        },
        "additionalProperties": False,
        "properties": {
            "order": {"type": "integer"},
            "to": {"$ref": "#/$defs/Address"},
            "speed": {"default": "slow", "enum": ["slow", "fast"], "type": "string"},
            "note": {"default": "", "description": "printed on the box", "type": "string"},
        },
        "required": ["order", "to"],
        "type": "object",
    }


async def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    assert (await call(ship, order=7, to={"city": "Bonn"}, note="x")) == "7 to Bonn, slow, 'x'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": {"city": "Bonn"}}, "order: Field required"),
        (
            {"order": "many", "to": {"city": "Bonn"}},
            "order: Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"order": 1, "to": {}}, "to.city: Field required"),
        (
            {"order": 1, "to": {"city": "Bonn"}, "gift": True},
            "gift: Extra inputs are not permitted",
        ),
    ],
)
async def test_wrong_arguments_are_reported_to_the_model_by_place_and_without_values(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError) as caught:
        await call(ship, **arguments)

    assert (caught.value.code, caught.value.message) == ("invalid_arguments", message)


async def test_many_wrong_arguments_are_reported_briefly() -> None:
    @tool
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(ToolError) as caught:
        await call(add_up, numbers=["x"] * 1_000)

    assert caught.value.message.count("numbers.") == 5
    assert caught.value.message.endswith("; and 995 more")


async def test_the_context_is_passed_and_not_shown() -> None:
    @tool
    async def whoami(context: ToolContext, schema: str = "s") -> str:
        return f"{context.tenant} {context.idempotency_key} {schema}"

    assert (await call(whoami)) == "acme r:c s"
    assert list(whoami.input_schema["properties"]) == ["schema"]
    assert whoami.description == ""


def test_options_override_what_the_function_says() -> None:
    def rule(arguments: Mapping[str, Any]) -> bool:
        return arguments["amount"] > 10

    made = tool(name="refund", effects="idempotent", approval=rule, timeout_s=None)(lambda: None)

    assert (made.name, made.effects, made.timeout_s) == ("refund", "idempotent", None)
    assert made.needs_approval({"amount": 11}) is True
    assert made.needs_approval({"amount": 10}) is False


def test_a_tool_without_a_description_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def mute() -> None: ...

    assert tool(mute).description == ""
    (message,) = caplog.messages
    assert message.startswith("tool 'mute' has no description")
    assert message.endswith("write a docstring, or give description=")
    caplog.clear()
    tool(description="Is silent.")(mute)
    tool(description="")(mute)
    assert caplog.messages == []


def test_a_parameter_that_no_model_could_fill_is_refused_at_definition() -> None:
    def rest(*names: str) -> None: ...

    def by_position(n: int, /) -> None: ...

    def described(n: int = Field(3, gt=0)) -> None: ...

    def later(n: "Missing") -> None: ...  # noqa: F821 - that is the point  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType] - as before

    class Bank:
        def pay(self, n: int) -> None: ...

    with pytest.raises(TypeError, match=r"'self' has no annotation.*: make the tool of the bound"):
        tool(Bank.pay)
    assert tool(Bank().pay).name == "pay"
    with pytest.raises(TypeError, match=r"cannot be resolved \(name 'Missing' is not defined\)"):
        tool(later)  # pyright: ignore[reportUnknownArgumentType] - as above
    with pytest.raises(TypeError, match="'x' has no annotation: write x: str"):
        tool(lambda x: x)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - that is the point
    with pytest.raises(TypeError, match="a model cannot fill"):
        tool(rest)
    with pytest.raises(TypeError, match="a model cannot fill"):
        tool(by_position)
    with pytest.raises(TypeError, match=r"write 'n' as Annotated"):
        tool(described)


def test_a_name_that_no_provider_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="'no spaces' is not 1 to 64 letters"):
        tool(name="no spaces")(lambda: None)
    with pytest.raises(ValueError, match="at least 1"):
        tool(name="quiet", max_output_chars=0)(lambda: None)


def test_a_misspelt_effect_is_refused_and_not_taken_for_one_that_may_be_repeated() -> None:
    misspelt: Any = "Once"

    with pytest.raises(ValueError, match="'none', 'idempotent' or 'once', not 'Once'"):
        tool(name="pay", effects=misspelt)(lambda: None)
