import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lib._util.json import canonical
from lib.errors import ToolError
from lib.testing.aio import run
from lib.tools import Tool, ToolContext
from lib.tools.builtin import FileAccess, list_files_tool, read_file_tool
from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.tool import MAX_CHARS
from lib.tools.output import as_text

CONTEXT = ToolContext(run_id="r", call_id="c", idempotency_key="r:c")


def call(made: Tool, **arguments: Any) -> Any:
    async def main() -> Any:
        return await made.call(arguments, CONTEXT)

    return run(main())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (made / "t.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    return made


def test_reading_is_declared_as_what_it_is(root: Path) -> None:
    for made, name in (
        (read_file_tool(root), "read_file"),
        (list_files_tool(str(root)), "list_files"),
        (read_file_tool(FileAccess(root), name="cat"), "cat"),
        (list_files_tool(root, name="ls"), "ls"),
    ):
        notes = made.annotations
        assert (made.name, made.effects, made.untrusted_output) == (name, "none", True)
        assert (notes.read_only, notes.idempotent) == (True, True)
        assert (notes.destructive, notes.open_world) == (False, False)
        assert made.timeout_s == 30.0
        assert made.approval is False
        assert 20 < len(made.description) < 300


def test_the_arguments_are_described_and_no_others_are_taken(root: Path) -> None:
    path = "relative to the root, names separated by '/'"
    assert read_file_tool(root).input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": f"the file, {path}"},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "the first line, counted from 0",
            },
            "column": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "how many bytes of that line to skip: next_column of the call "
                "that has cut it",
            },
            "limit": {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                "default": None,
                "description": "how many lines; null for as many as fit",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    schema = list_files_tool(root).input_schema
    assert schema["additionalProperties"] is False
    assert all(field["description"] for field in schema["properties"].values())


def test_what_comes_back_is_what_the_schema_says(root: Path) -> None:
    for made, arguments in ((read_file_tool(root), {"path": "t.txt"}), (list_files_tool(root), {})):
        answer = call(made, **arguments)
        assert made.output_schema is not None
        shown = [key for key in made.output_schema["properties"] if key != "next_column"]
        assert list(answer) == shown
        assert list(answer) == made.output_schema["required"]


def test_a_file_is_read_and_a_directory_listed(root: Path) -> None:
    page = call(read_file_tool(root), path="t.txt", offset=1, limit=1)
    assert (page["text"], page["next_offset"]) == ("two\n", 2)
    assert call(read_file_tool(root), path="t.txt", limit=None)["lines"] == 3
    assert call(list_files_tool(root))["entries"] == [{"name": "t.txt", "type": "file", "size": 14}]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 1},
        {"path": "t.txt", "offset": -1},
        {"path": "t.txt", "offset": "1"},
        {"path": "t.txt", "offset": True},
        {"path": "t.txt", "limit": 0},
        {"path": "t.txt", "column": -1},
        {"path": "t.txt", "other": 1},
        {"path": ""},
        {"path": "\ud800"},
    ],
)
def test_wrong_arguments_are_refused_by_name(root: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as caught:
        call(read_file_tool(root), **arguments)

    assert caught.value.code == "invalid_arguments"
    assert str(root) not in caught.value.message


def test_a_refusal_names_the_requested_path_and_nothing_else(root: Path) -> None:
    (root / "out").symlink_to("/etc/passwd")
    for path, code in (("out", "blocked"), ("../x", "blocked"), ("nope", "not_found")):
        for made in (read_file_tool(root), list_files_tool(root)):
            with pytest.raises(ToolError) as caught:
                call(made, path=path)
            assert caught.value.code == code
            assert caught.value.message.startswith(f"'{path}' ")
            assert "/etc" not in caught.value.message
            assert str(root) not in caught.value.message


def test_invisible_characters_are_not_shown_to_the_model(root: Path) -> None:
    text = "shown\u202e\U000e0041\x1b[2J\u200b\u200b end\n"
    (root / "t.txt").write_text(text, encoding="utf-8")

    assert call(read_file_tool(root), path="t.txt")["text"] == "shown end\n"


def test_a_page_never_exceeds_what_the_engine_lets_through(root: Path) -> None:
    for char in ("x", '"', "\\", "\n", "\u00e9", "\U0001f600", "\x1b", "\xff"):
        (root / "big.txt").write_text(f"{char * 39}\n" * 40_000, encoding="utf-8")
        made = read_file_tool(root)

        answer = call(made, path="./" * 2_000 + "big.txt")
        assert len(answer["text"]) <= MAX_CHARS
        assert answer["truncated"]
        assert answer["next_offset"] == answer["text"].count("\n")
        assert len(as_text(answer)) <= made.max_output_chars


def test_a_file_of_one_huge_line_is_read_to_its_end(root: Path) -> None:
    rows = ",".join(f'{{"name":"caf\u00e9 {number}"}}' for number in range(6_000))
    (root / "rows.json").write_text(f"[{rows}]", encoding="utf-8")
    made = read_file_tool(root)

    shown, answer = "", call(made, path="rows.json")
    while "next_column" in answer:
        assert answer["truncated"]
        assert set(answer) <= set((made.output_schema or {})["properties"])
        shown += answer["text"]
        answer = call(made, path="rows.json", column=answer["next_column"])

    assert shown + answer["text"] == f"[{rows}]"
    assert (answer["truncated"], answer["next_offset"]) == (False, None)


def test_the_page_of_the_tool_can_be_set_and_the_access_bounds_it(root: Path) -> None:
    assert call(read_file_tool(root, max_chars=5), path="t.txt")["text"] == "one\n"
    small = FileAccess(root, max_bytes=8)
    assert call(read_file_tool(small), path="t.txt")["text"] == "one\ntwo\n"
    with pytest.raises(ValueError, match="max_chars"):
        read_file_tool(root, max_chars=0)
    with pytest.raises(TypeError, match="max_chars"):
        read_file_tool(root, max_chars=True)


def test_a_listing_of_long_names_ends_where_it_would_be_cut(root: Path) -> None:
    for number in range(300):
        (root / (f"{number:03d}" + "\\" * 250)).touch()
    made = list_files_tool(root)

    first = call(made, limit=1000)
    assert len(as_text(first)) <= made.max_output_chars
    assert sum(len(canonical(entry)) for entry in first["entries"]) <= MAX_CHARS
    assert first["truncated"]
    assert first["next_offset"] == len(first["entries"]) > 10
    second = call(made, offset=first["next_offset"], limit=1)
    assert second["entries"][0]["name"][:3] == f"{first['next_offset']:03d}"


def test_files_are_read_off_the_event_loop(root: Path) -> None:
    threads: list[int] = []

    class Seen(FileAccess):
        def read_within(self, *args: Any, **options: Any) -> dict[str, object]:
            threads.append(threading.get_ident())
            return super().read_within(*args, **options)

    made = read_file_tool(Seen(root))
    assert call(made, path="t.txt")["lines"] == 3
    assert threads != [threading.get_ident()]


async def test_the_tools_can_be_made_on_an_event_loop(root: Path) -> None:
    made = read_file_tool(root)
    assert (await made.call({"path": "t.txt"}, CONTEXT))["lines"] == 3


def test_a_cancelled_call_stops_reading_and_leaves_no_descriptor(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "big.txt").write_bytes(b"text\n" * 300_000)
    made, listed = read_file_tool(root), list_files_tool(root)
    started, cancelled = threading.Event(), threading.Event()
    outcomes: list[str] = []
    spend = Budget.spend

    def slow(self: Budget, count: int = 0) -> None:
        started.set()
        assert cancelled.wait(10)
        try:
            spend(self, count)
        except Exception as error:
            outcomes.append(str(error))
            raise

    monkeypatch.setattr(Budget, "spend", slow)
    before = {link.name for link in Path("/proc/self/fd").iterdir()}

    async def main(call: Callable[[], Any]) -> None:
        task = asyncio.ensure_future(call())
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()

    run(main(lambda: made.call({"path": "big.txt", "offset": 250_000}, CONTEXT)))
    started.clear()
    cancelled.clear()
    run(main(lambda: listed.call({}, CONTEXT)))

    assert outcomes == ["cancelled", "cancelled"]
    assert not {link.name for link in Path("/proc/self/fd").iterdir()} - before
