"""Large content: by which paths it may come, and what becomes of it when others erase."""

import asyncio
from collections.abc import Sequence

import pytest

from lib.engine.handlers.attachments import PinnedBlobs
from lib.events import INLINE_LIMIT, Event, EventStore, MemoryBlobStore, MemoryEventStore
from lib.events.blobs import blob_refs
from lib.events.codec import encode_data
from lib.llm import FunctionClient, Image, Message, Reply, Text, ToolCall, ToolResult
from lib.privacy import erase_run
from lib.testing.agents import make_engine
from lib.testing.event_store.kit import attached, begin
from lib.tools import tool

SHOWN = frozenset({"text", "image"})
CONTENT = b"p" * (INLINE_LIMIT + 1)
LIMIT_CHARS = 2 * INLINE_LIMIT


def picture(content: bytes = CONTENT) -> Image:
    return Image(data=content, media_type="image/png")


def answer(_: Sequence[Message]) -> str:
    return "seen"


def draw(_: Sequence[Message]) -> Reply:
    return Reply((Text("look"), picture()))


class Forgetful(MemoryBlobStore):
    """Forgets whatever is put for the first time, as if a collection had found it unused."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = set[str]()

    async def put(self, content: bytes) -> str:
        digest = await super().put(content)
        if digest not in self.forgotten:
            self.forgotten.add(digest)
            await self.delete(digest)
        return digest


async def refs(store: EventStore) -> set[str]:
    logs = [await store.read(info.run_id) for info in await store.runs()]
    return {
        ref.digest for log in logs for event in log for ref in blob_refs(event.kind, event.data)
    }


def largest(log: Sequence[Event]) -> int:
    return max(len(encode_data(event.data)) for event in log)


async def test_content_that_is_forgotten_before_its_append_is_put_again() -> None:
    blobs = Forgetful()
    drawing = FunctionClient(draw, modalities=SHOWN)
    async with make_engine(drawing, blobs=blobs) as engine:
        started = await engine.start("draw")
        await started.result()
        await engine.wait_while_driven(
            started.id
        )  # it is put again after the append that ends the run
        assert len(await refs(engine.store)) == 1
        assert {one.digest for one in await blobs.stored()} == await refs(engine.store)

    blobs = Forgetful()
    looking = FunctionClient(answer, modalities=SHOWN)
    async with make_engine(looking, blobs=blobs) as engine:
        started = await engine.start(Message.user("?", picture()))
        assert (await started.result()).outcome == "COMPLETED"
        session = await engine.start_session()
        turn = await session.send(Message.user("?", picture(CONTENT + b"2")))
        assert (await turn.result()).outcome == "COMPLETED"
        assert len(await refs(engine.store)) == 2
        assert {one.digest for one in await blobs.stored()} == await refs(engine.store)


async def test_content_that_is_being_put_again_can_be_read_by_the_run_that_refers_to_it() -> None:
    class Slow(Forgetful):
        async def put(self, content: bytes) -> str:
            for _ in range(200 if self.forgotten else 0):
                await asyncio.sleep(0)  # noqa: TID251 - lets the run go on
            return await super().put(content)

    client = FunctionClient(answer, modalities=SHOWN)
    async with make_engine(client, blobs=Slow()) as engine:
        session = await engine.start_session()
        turn = await session.send(Message.user("?", picture()))
        assert (await turn.result()).outcome == "COMPLETED"


@pytest.mark.parametrize("path", ["start", "reply", "turn"])
async def test_large_attachments_are_kept_beside_the_log_whichever_way_they_come(path: str) -> None:
    client = FunctionClient(draw if path == "reply" else answer, modalities=SHOWN)
    async with make_engine(client, blobs=MemoryBlobStore()) as engine:
        if path == "turn":
            session = await engine.start_session()
            await (await session.send(Message.user(picture()))).result()
        else:
            content = "draw" if path == "reply" else Message.user(picture())
            await (await engine.start(content)).result()
        logs = [await engine.store.read(info.run_id) for info in await engine.store.runs()]

        assert len(await refs(engine.store)) == 1
        assert max(map(largest, logs)) < 2_000


async def test_a_large_attachment_of_a_reply_without_a_blob_store_fails_the_call() -> None:
    async with make_engine(FunctionClient(draw, modalities=SHOWN)) as engine:
        started = await engine.start("draw")
        result = await started.result()

        assert (result.outcome, result.error and result.error["type"]) == (
            "FAILED",
            "ContentTooLarge",
        )
        assert largest(await engine.store.read(started.id)) < 2_000


async def test_what_tools_return_or_raise_is_cut() -> None:
    @tool
    def talks() -> str:
        return "x" * 5_000_000

    @tool
    def fails() -> str:
        raise ValueError("x" * 5_000_000)

    def think(messages: Sequence[Message]) -> Reply:
        if any(isinstance(part, ToolResult) for part in messages[-1].parts):
            return Reply((Text("done"),))
        calls = (ToolCall("c1", "talks", {}), ToolCall("c2", "fails", {}))
        return Reply(calls, stop="tool_calls")

    async with make_engine(FunctionClient(think), talks, fails) as engine:
        started = await engine.start("go")
        assert (await started.result()).outcome == "COMPLETED"
        assert largest(await engine.store.read(started.id)) < 2 * 20_000


async def test_an_engine_holds_a_bounded_amount_of_content_and_only_until_its_append() -> None:
    inner = MemoryBlobStore()
    blobs = PinnedBlobs(inner, most_bytes=10)
    first, second, third = [await blobs.put(content) for content in (b"1" * 6, b"2" * 4, b"3")]
    assert [one.digest for one in await blobs.stored()] == sorted([first, second, third])
    for digest in (first, second, third):
        assert await blobs.has(digest)
        assert await blobs.delete(digest)
    store = MemoryEventStore()
    await store.setup()
    log = await begin(store, "run", input=attached(first, second, third))
    await blobs.appended(log)
    left = {one.digest for one in await inner.stored()}
    assert left == {second, third}, "the first one was let go"

    for digest in left:
        await blobs.delete(digest)
    await blobs.appended(log)
    assert await inner.stored() == [], "it was held for one append"

    digest = await blobs.put(b"3")
    await blobs.put(b"3")
    for expected in (True, True, False):
        await blobs.delete(digest)
        await blobs.appended(log)
        assert await inner.has(digest) is expected, "and for each that is to come"


async def test_a_run_that_is_erased_under_its_driver_stops_there() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Sequence[Message]) -> Reply:
        reached.set()
        await go_on.wait()
        return Reply((Text("late"), picture()))

    blobs = MemoryBlobStore()
    client = FunctionClient(wait, modalities=SHOWN)
    async with make_engine(client, blobs=blobs) as engine:
        started = await engine.start(Message.user("?", picture(CONTENT + b"2")))
        await reached.wait()
        assert (await erase_run(engine.store, started.id, blobs=blobs, force=True)).runs == 1
        assert await blobs.stored() == []
        go_on.set()
        with pytest.raises(Exception, match=started.id) as caught:
            await started.result()
        assert type(caught.value).__name__ in ("RunErased", "RunNotFound", "RunAbandoned")
        assert await engine.store.runs() == []
