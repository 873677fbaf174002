"""The tool: what the model sees, gets and may ask for."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools import ToolAnnotations, ToolContext
from lib.tools.builtin import FetchPolicy, SafeFetcher, http_fetch_tool
from lib.tools.builtin.fetch import tool as module

CONTEXT = ToolContext(run_id="run", call_id="call", idempotency_key="key")
TEXT = "".join(f"line {number}\n" for number in range(200))


async def resolve(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


def fetcher(content: str = TEXT, media_type: str = "text/plain", **policy: Any) -> SafeFetcher:
    def serve(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.startswith("/to/"):
            location = f"http://{request.url.path.removeprefix('/to/')}/"
            return httpx2.Response(302, headers={"Location": location})
        return httpx2.Response(200, text=content, headers={"Content-Type": media_type})

    transport = httpx2.MockTransport(serve)
    return SafeFetcher(FetchPolicy(**policy), resolver=resolve, transport=transport)


async def call(made: Any, **arguments: Any) -> str:
    return await made.call(arguments, CONTEXT)


def test_what_the_tool_says_of_itself() -> None:
    made = http_fetch_tool(FetchPolicy(timeout_s=7), max_chars=100)

    assert (made.name, made.effects, made.untrusted_output, made.approval) == (
        "http_fetch",
        "none",
        True,
        False,
    )
    assert made.annotations == ToolAnnotations(read_only=True, idempotent=True, open_world=True)
    assert made.timeout_s == 22.0
    assert made.max_output_chars == 4_100
    assert made.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["url"],
        "properties": {
            "url": {
                "type": "string",
                "maxLength": 8_192,
                "description": "The complete URL, http or https.",
            },
            "start": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "The character to begin at, 0 for the beginning.",
            },
        },
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": b"http://example.com/"},
        {"url": 5},
        {"url": "http://example.com/", "start": True},
        {"url": "http://example.com/", "start": "5"},
        {"url": "http://example.com/", "start": 5.5},
    ],
)
async def test_arguments_of_another_type_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        await call(http_fetch_tool(fetcher=fetcher()), **arguments)

    assert caught.value.code == "invalid_arguments"


async def test_a_short_text_comes_whole() -> None:
    made = http_fetch_tool(fetcher=fetcher("some text"), name="get")

    assert made.name == "get"
    assert (await call(made, url="http://example.com/to/example.org")) == (
        "url: http://example.org/\nstatus: 200\n\nsome text"
    )


def test_pages_are_turned_into_text_at_the_same_time_in_several_loops() -> None:
    made = http_fetch_tool(fetcher=fetcher("some text"))

    async def main() -> list[str]:
        calls = [made.call({"url": "http://example.com/"}, CONTEXT) for _ in range(10)]
        return await asyncio.gather(*calls)

    assert len(set(run(main()) + run(main()))) == 1


async def test_the_title_of_a_page_is_one_line_of_limited_length() -> None:
    title = "a\ntitle\n" + "x" * 300
    extracted = module.Extracted(title=title, text="text", note="a note", charset="utf-8")
    fetched = await fetcher().fetch("http://example.com/")

    first, *rest = module.shown(fetched, extracted, start=0, max_chars=100).split("\n")

    assert first == "title: a title " + "x" * 192
    assert rest == ["url: http://example.com/", "status: 200", "note: a note", "", "text"]


async def test_a_long_text_is_read_in_parts_that_make_it_up() -> None:
    made = http_fetch_tool(fetcher=fetcher(), max_chars=300)
    parts: list[str] = []
    start = 0
    while True:
        head, _, text = (await call(made, url="http://example.com/", start=start)).partition("\n\n")
        assert head == "url: http://example.com/\nstatus: 200"
        text, _, note = text.partition("\n\n[")
        parts.append(text)
        assert len(text) <= 300
        if not note:
            break
        start = int(note.rpartition("=")[2].removesuffix("]"))

    assert "".join(parts) == TEXT.rstrip()
    assert len(parts) > 5


async def test_a_cut_page_says_how_to_read_on() -> None:
    made = http_fetch_tool(fetcher=fetcher("x" * 25), max_chars=10)

    assert (await call(made, url="http://example.com/")).endswith(
        "\n\nxxxxxxxxxx\n\n[15 of 25 characters are left: call again with start=10]"
    )


async def test_a_start_after_the_end_is_a_mistake() -> None:
    with pytest.raises(ToolError, match="start is 25, the text has 25") as caught:
        await call(http_fetch_tool(fetcher=fetcher("x" * 25)), url="http://example.com/", start=25)

    assert caught.value.code == "invalid_arguments"


async def test_a_text_that_was_cut_says_so() -> None:
    made = http_fetch_tool(fetcher=fetcher("x" * 25, max_bytes=5))

    assert (await call(made, url="http://example.com/")).endswith(
        "note: the page is longer than what was read of it\n\nxxxxx"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"url": 1},
        {"url": "http://example.com/", "start": -1},
        {"url": "http://example.com/", "headers": {"Host": "x"}},
        {"url": "http://example.com/" + "x" * 9_000},
    ],
)
async def test_arguments_that_are_none_are_refused(arguments: Mapping[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        await call(http_fetch_tool(fetcher=fetcher()), **arguments)

    assert caught.value.code == "invalid_arguments"


async def test_only_allowed_urls_are_fetched() -> None:
    seen = {"http://example.com/seen"}
    made = http_fetch_tool(fetcher=fetcher("text"), allowed_urls=seen.__contains__)

    assert (await call(made, url="http://example.com/seen")).endswith("text")
    with pytest.raises(FetchBlocked, match="only URLs that were seen"):
        await call(made, url="http://example.com/seen?secret=1")


async def test_hosts_may_need_approval_and_redirects_to_them_are_refused() -> None:
    made = http_fetch_tool(
        fetcher=fetcher("text"), approve_hosts=lambda host: host != "example.com"
    )

    assert not made.needs_approval({"url": "http://EXAMPLE.com./"})
    assert made.needs_approval({"url": "http://example.org/"})
    assert not made.needs_approval({"url": "http://127.1/"})
    assert not made.needs_approval({})
    assert (await call(made, url="http://example.com/")).endswith("text")
    assert (await call(made, url="http://example.org/")).endswith("text")  # it was approved
    with pytest.raises(FetchBlocked, match="redirect to a host that needs approval"):
        await call(made, url="http://example.com/to/example.org")


async def test_turning_a_page_into_text_is_limited_in_time() -> None:
    def slow(*_: Any, **__: Any) -> Any:
        time.sleep(0.3)

    fetched = await fetcher().fetch("http://example.com/")

    with pytest.raises(ToolError, match="took too long") as caught:
        await module.Reading(read=slow, timeout_s=0.05).text_of(fetched)

    assert caught.value.code == "timeout"


def test_what_cannot_be_a_tool() -> None:
    with pytest.raises(ValueError, match="not both"):
        http_fetch_tool(FetchPolicy(), fetcher=fetcher())
    with pytest.raises(ValueError, match="max_chars"):
        http_fetch_tool(max_chars=0)
    with pytest.raises(ValueError, match="tool name"):
        http_fetch_tool(name="a b")
