"""The stand-in for a model: searches, then quotes."""

import json

import click
import pytest

from lib.cli import main
from lib.cli.demo import own_documents
from lib.cli.models import ExtractiveClient
from lib.llm import Delta, Message, Reply, ToolCall, ToolResult, ToolSpec
from lib.testing.aio import run

SEARCH = ToolSpec("search", "Search.", {"type": "object"})
PASSAGE = {
    "source": "a.md",
    "line": 10,
    "text": (
        "# Postage rules\n\nParcels are heavy. We pay\nthe postage!\n\n"
        "| postage | who |\n\n- Not we."
    ),
}


def conversation(*results: ToolResult) -> list[Message]:
    return [Message.user("Who pays the postage?"), *[Message.tool(result) for result in results]]


def test_it_searches_for_the_question_first() -> None:
    reply = run(ExtractiveClient().complete(conversation(), tools=[SEARCH]))

    assert reply.tool_calls == (ToolCall("search-1", "search", {"query": "Who pays the postage?"}),)
    assert reply.stop == "tool_calls"


def test_it_quotes_whole_sentences_of_running_text_with_file_and_line() -> None:
    found = ToolResult("search-1", json.dumps([PASSAGE]))

    answer = run(ExtractiveClient().complete(conversation(found), tools=[SEARCH])).text

    assert answer.splitlines()[0] == "We pay the postage! [a.md:12]"
    assert "No model is configured" in answer
    assert "rules" not in answer
    assert "|" not in answer


def test_it_quotes_neither_code_nor_comments_nor_halves_of_sentences_nor_markup() -> None:
    text = (
        "postage = 1. Postage code.\n```\n\nof the postage. **Postage** is in "
        "[the table. Of postage](post.md), see `a. b`.\n\n"
        "<!-- Postage comment. -->\n```\nPostage block.\n```\n    Postage indented.\n"
    )
    found = ToolResult("search-1", json.dumps([{"source": "a.md", "line": 1, "text": text}]))

    answer = run(ExtractiveClient().complete(conversation(found), tools=[SEARCH])).text

    assert answer.splitlines()[0] == ("Postage is in the table. Of postage, see `a. b`. [a.md:4]")


def test_the_passage_that_was_found_first_is_quoted_first() -> None:
    passages = [
        {"source": f"{name}.md", "line": 1, "text": f"The postage is paid by {name}."}
        for name in ("first", "second", "third", "fourth")
    ]
    found = ToolResult("search-1", json.dumps(passages))

    answer = run(ExtractiveClient().complete(conversation(found), tools=[SEARCH])).text

    assert [line for line in answer.splitlines() if line][:3] == [
        f"The postage is paid by {name}. [{name}.md:1]" for name in ("first", "second", "third")
    ]
    assert "fourth" not in answer


@pytest.mark.parametrize(
    "result", [ToolResult("c", "[]"), ToolResult("c", "out of order", is_error=True)]
)
def test_it_says_when_it_found_nothing(result: ToolResult) -> None:
    assert run(ExtractiveClient().complete(conversation(result))).text == (
        "The documents say nothing about this."
    )


def test_its_answer_can_be_streamed() -> None:
    async def main() -> list[Delta | Reply]:
        return [piece async for piece in ExtractiveClient().stream(conversation(), tools=())]

    delta, reply = run(main())
    assert isinstance(delta, Delta)
    assert isinstance(reply, Reply)
    assert delta.text == reply.text


def test_an_installation_without_documents_asks_for_a_path() -> None:
    with pytest.raises(click.UsageError, match="name a PATH"):
        own_documents(())


def test_the_command_names_its_subcommands_for_completion() -> None:
    names = ["demo", "mcp", "memory", "privacy", "store", "trace", "vector", "worker"]

    assert main.list_commands(click.Context(main)) == names
