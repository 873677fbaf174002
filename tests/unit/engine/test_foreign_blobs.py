"""The content of one tenant is not another's to refer to."""

import hashlib
from collections.abc import Sequence

import pytest

from lib.engine import Engine
from lib.errors import BlobMissing
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.llm import Attachment, BlobRef, FunctionClient, Image, Message
from lib.testing.agents import make_engine

CONTENT = b"private" * 50_000
REF = BlobRef(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "image/png")
NOWHERE = BlobRef("0" * 64, 1, "image/png")


def looking(shown: list[int], store: MemoryEventStore | None = None) -> Engine:
    def look(messages: Sequence[Message]) -> str:
        parts = [part for message in messages for part in message.parts]
        shown.extend(len(p.data or b"") for p in parts if isinstance(p, Attachment))
        return "ok"

    client = FunctionClient(look, modalities=frozenset({"text", "image"}))
    return make_engine(client, store=store, blobs=MemoryBlobStore())


def showing(ref: BlobRef) -> Message:
    return Message.user("look", Image(blob=ref))


@pytest.mark.parametrize("ref", [REF, NOWHERE])
async def test_a_blob_that_no_run_of_the_tenant_refers_to_is_a_missing_one(ref: BlobRef) -> None:
    shown: list[int] = []
    async with looking(shown) as engine:
        own = Message.user("look", Image(data=CONTENT, media_type="image/png"))
        await (await engine.start(own, tenant="a")).result()
        assert shown == [len(CONTENT)]
        session = await engine.start_session(tenant="b")
        with pytest.raises(BlobMissing) as caught:
            await engine.start(showing(ref), tenant="b")
        assert str(caught.value) == str(BlobMissing(ref.sha256))
        with pytest.raises(BlobMissing):
            await session.send(showing(ref))
        with pytest.raises(BlobMissing):
            await engine.session(session.id, tenant="b").send(showing(ref))
        assert len(shown) == 1
        assert await session.turns() == []


async def test_a_tenant_can_refer_to_its_own_blobs_and_a_run_without_tenant_to_any() -> None:
    shown: list[int] = []
    async with looking(shown) as engine:
        own = Message.user("look", Image(data=CONTENT, media_type="image/png"))
        await (await engine.start(own, tenant="a")).result()
        await (await engine.start(showing(REF), tenant="a")).result()
        session = await engine.start_session(tenant="a")
        await (await session.send(showing(REF))).result()
        await (await engine.start(showing(REF))).result()
        assert shown == [len(CONTENT)] * 4
