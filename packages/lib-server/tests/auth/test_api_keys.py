import asyncio
import pickle
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_kit import url_of

from lib.errors import StoreError
from lib.events import EventStore, MemoryEventStore, open_store
from lib.testing.clock import ManualClock
from lib_server.auth.api_key import ApiKeyAuthenticator
from lib_server.auth.jwt import JWTAuthenticator, StaticKeys
from lib_server.auth.keys import ApiKeys, KeyNotFound, digest, key_mark, parse_key
from lib_server.auth.principal import (
    AuthenticationUnavailable,
    FirstOf,
    Principal,
    Unauthenticated,
    bearer_token,
)

from .issuer import AUDIENCE, ISSUER, key_set, token

OTHER_PROCESS = Path(__file__).with_name("other_process.py")
ZERO = "lib_sk_" + "0" * 12 + "_" + "0" * 43


class CountingStore:
    """The marks of a store, which counts reads and fails when a test wants it."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.reads = 0
        self.writes: list[str] = []
        self.is_down = False
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def mark(self, name: str) -> str | None:
        self.reads += 1
        if self.is_down:
            raise StoreError("down", retryable=True)
        value = await self._store.mark(name)
        await asyncio.sleep(0)  # noqa: TID251 - lets others write meanwhile
        return value

    async def set_mark(self, name: str, value: str) -> None:
        await self.may_write.wait()
        if self.is_down:
            raise StoreError("down", retryable=True)
        self.writes.append(name)
        await self._store.set_mark(name, value)

    async def marks(self, prefix: str) -> dict[str, str]:
        return await self._store.marks(prefix)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        return await self._store.compare_and_set_mark(name, expected=expected, value=value)


class World:
    """A store with keys, and a server process that authenticates by them."""

    def __init__(self, store: EventStore, **options: Any) -> None:
        self.clock = ManualClock()
        self.store = CountingStore(store)
        self.keys = ApiKeys(self.store, clock=self.clock)
        options.setdefault("refusal_step_s", 0)
        self.authenticator = ApiKeyAuthenticator(self.store, clock=self.clock, **options)

    async def outcome(self, key: str | None) -> str:
        """Return the tenant of the caller, or why it was refused."""
        try:
            principal = await self.authenticator.authenticate(key and f"Bearer {key}")
        except Unauthenticated as error:
            return error.reason
        return principal.tenant or "-"


@asynccontextmanager
async def a_world(**options: Any) -> AsyncGenerator[World]:
    store = MemoryEventStore()
    await store.setup()
    world = World(store, **options)
    try:
        yield world
    finally:
        await world.authenticator.aclose()
        await store.close()


async def test_a_key_becomes_the_principal_that_it_was_created_for() -> None:
    async with a_world() as world:
        new = await world.keys.create(
            tenant="acme",
            user="ann",
            scopes=["read", "approve"],
            name="phone",
            metadata={"team": "support"},
            expires_at=world.clock.now() + timedelta(days=1),
        )

        principal = await world.authenticator.authenticate(f"bearer  {new.key}")

        assert principal == Principal(
            key_id=new.record.key_id,
            tenant="acme",
            user="ann",
            scopes=frozenset({"read", "approve"}),
            metadata={"team": "support"},
            expires_at=world.clock.now().timestamp() + 86_400,
        )
        assert re.fullmatch(r"lib_sk_[A-Za-z0-9]{12}_[A-Za-z0-9]{49}", new.key)


async def test_refusals() -> None:
    async with a_world() as world:
        new = await world.keys.create(tenant="acme")
        other = await world.keys.create(tenant="umbrella")
        foreign = parse_key(new.key, "lib_sk")
        body = new.key[:-6]
        refused = {
            "missing": None,
            "format": body + ("000000" if not new.key.endswith("000000") else "000001"),
            "header": new.key[:20] + " " + new.key[20:],
        }
        formats = [
            new.record.digest,
            digest(new.key, None),
            new.key.replace("lib_sk_", "lib_test_"),
            new.key[:-1],
            new.key + "0",
            new.key.swapcase(),
            "lib_sk_",
            "x",
        ]
        headers = ["' OR 1=1--", "a, Bearer b", "", "ÿ", "lib\r\nX: y", new.key + " ", "Basic x"]

        assert {why: await world.outcome(key) for why, key in refused.items()} == {
            why: why for why in refused
        }
        assert {await world.outcome(each) for each in formats} == {"format"}
        assert {await world.outcome(each) for each in headers} == {"header"}
        assert await world.outcome("A" * 65_536) == "size"
        assert foreign is not None
        assert world.store.reads == 0, "no store is read for what was never a key"
        mixed = made(f"lib_sk_{new.record.key_id}_{other.key[20:63]}")
        assert await world.outcome(mixed) == "key"
        assert await world.outcome(made(ZERO)) == "key"
        assert world.store.reads == 2


def made(body: str) -> str:
    """Return a key with a right checksum, of which no store knows."""
    from lib_server.auth import keys

    checksum = keys._checksum  # pyright: ignore[reportPrivateUsage] - forges one
    return body + checksum(body)


async def test_an_unknown_id_and_a_wrong_secret_cost_the_same_reads_and_answer_the_same() -> None:
    async with a_world() as world:
        new = await world.keys.create(tenant="acme")
        assert await world.outcome(new.key) == "acme"  # its record is in memory now
        seen: list[tuple[str, int]] = []

        for key in (made(ZERO), made(f"lib_sk_{new.record.key_id}_{'0' * 43}")):
            before = world.store.reads
            with pytest.raises(Unauthenticated) as refusal:
                await world.authenticator.authenticate(f"Bearer {key}")
            seen.append((str(refusal.value), world.store.reads - before))

        assert seen == [("the credential is not valid", 1)] * 2


async def test_a_refusal_takes_a_step_of_time() -> None:
    async with a_world(refusal_step_s=0.01) as world:
        refusing = asyncio.create_task(world.outcome(made(ZERO)))
        while not world.clock.sleepers:  # noqa: ASYNC110 - a clock has no event for it
            await asyncio.sleep(0)  # noqa: TID251 - lets it read the store
        world.clock.advance(0.005)
        assert not refusing.done()
        world.clock.advance(0.005)

        assert await refusing == "key"


async def test_admissions_come_from_memory_until_a_revocation_has_to_be_seen() -> None:
    async with a_world(max_age_s=5) as world:
        new = await world.keys.create(tenant="acme")
        for _ in range(10):
            assert await world.outcome(new.key) == "acme"
        assert world.store.reads == 1
        await world.keys.revoke(new.record.key_id)
        world.clock.advance(4.9)
        assert await world.outcome(new.key) == "acme"
        world.clock.advance(0.1)

        assert await world.outcome(new.key) == "revoked"


async def test_a_key_expires_to_the_second() -> None:
    async with a_world() as world:
        new = await world.keys.create(
            tenant="acme", expires_at=world.clock.now() + timedelta(seconds=2)
        )
        assert await world.outcome(new.key) == "acme"
        world.clock.advance(2)

        assert await world.outcome(new.key) == "expired"


async def test_rotation_leaves_two_keys_live_until_the_old_one_ends() -> None:
    async with a_world(max_age_s=0) as world:
        old = await world.keys.create(tenant="acme", user="ann", scopes=["approve"], name="ci")
        end = world.clock.now() + timedelta(hours=1)
        new = await world.keys.rotate(old.record.key_id, old_expires_at=end)

        assert [await world.outcome(each.key) for each in (old, new)] == ["acme", "acme"]
        assert (new.record.user, new.record.scopes) == ("ann", frozenset({"approve"}))
        world.clock.advance(3600)
        assert [await world.outcome(each.key) for each in (old, new)] == ["expired", "acme"]
        with pytest.raises(ValueError, match="valid API key"):
            await world.keys.rotate(old.record.key_id, old_expires_at=end)


async def test_a_pepper_is_needed_for_the_keys_that_were_created_with_it() -> None:
    async with a_world() as world:
        pepper = b"p" * 16
        plain = await world.keys.create(tenant="acme")
        seasoned = await ApiKeys(world.store, pepper=pepper, clock=world.clock).create(tenant="b")
        outcomes: list[list[str]] = []
        for each in (None, pepper, b"q" * 16):
            world.authenticator = ApiKeyAuthenticator(
                world.store, pepper=each, refusal_step_s=0, clock=world.clock
            )
            outcomes.append([await world.outcome(key.key) for key in (plain, seasoned)])

        assert outcomes == [["acme", "key"], ["acme", "b"], ["acme", "key"]]
        with pytest.raises(ValueError, match="at least 16 bytes"):
            ApiKeyAuthenticator(world.store, pepper=b"short")


async def test_memory_for_records_is_bounded() -> None:
    async with a_world(max_cached=2, last_use_s=1e9) as world:
        keys = [await world.keys.create(tenant=f"t{n}") for n in range(3)]
        for key in keys:
            await world.outcome(key.key)
        reads = world.store.reads
        await world.outcome(keys[2].key)
        await world.outcome(keys[0].key)

        assert world.store.reads == reads + 1


async def test_the_last_use_is_written_now_and_then_and_no_request_waits_for_it() -> None:
    async with a_world(last_use_s=300) as world:
        new = await world.keys.create(tenant="acme")
        world.store.writes.clear()
        world.store.may_write.clear()  # the store takes no write
        for _ in range(3):
            assert await world.outcome(new.key) == "acme"
        world.store.may_write.set()
        await world.authenticator.aclose()
        assert len(world.store.writes) == 1
        world.clock.advance(299)
        await world.outcome(new.key)
        world.clock.advance(1)
        await world.outcome(new.key)
        await world.authenticator.aclose()

        assert len(world.store.writes) == 2
        [record] = await world.keys.list()
        assert record.last_used_at == world.clock.now().timestamp()


async def test_a_store_that_is_down_is_no_fault_of_the_key() -> None:
    async with a_world(max_age_s=5) as world:
        new = await world.keys.create(tenant="acme")
        await world.outcome(new.key)
        world.store.is_down = True
        assert await world.outcome(new.key) == "acme"
        world.clock.advance(5)

        with pytest.raises(AuthenticationUnavailable) as failure:
            await world.outcome(new.key)
        assert failure.value.retry_after_s > 0


async def test_a_record_that_cannot_be_read_admits_no_caller() -> None:
    async with a_world() as world:
        new = await world.keys.create(tenant="acme")
        for value in ("", "{}", "[]", '{"key_id": "x", "scopes": 7}'):
            await world.store.set_mark(key_mark(new.record.key_id), value)
            assert await world.outcome(new.key) == "record"


async def test_no_key_is_shown_by_anything_but_its_creation() -> None:
    async with a_world() as world:
        new = await world.keys.create(tenant="acme", name="ci")
        await world.outcome(new.key)
        secret = new.key[20:63]
        shown = [
            repr(new),
            repr(new.record),
            repr(world.authenticator),
            repr(parse_key(new.key, "lib_sk")),
            repr(await world.keys.list()),
            str(await world.store.marks("")),
        ]

        assert not [each for each in shown if secret in each]
        assert secret not in repr(pickle.loads(pickle.dumps(new.record)))
        assert new.record.digest not in repr(new.record)


async def test_what_cannot_be_a_key_is_refused_before_it_is_stored() -> None:
    async with a_world() as world:
        past = world.clock.now()
        wrong: list[dict[str, Any]] = [
            {"tenant": ""},
            {"tenant": "../t2"},
            {"user": "a\nb"},
            {"scopes": []},
            {"scopes": ["root"]},
            {"name": "\x1b[31m"},
            {"expires_at": past},
        ]
        for options in wrong:
            with pytest.raises(ValueError, match=r"^expected"):
                await world.keys.create(**options)
        with pytest.raises(KeyNotFound):
            await world.keys.revoke("none")

        assert await world.keys.list() == []
        with pytest.raises(ValueError, match="prefix"):
            ApiKeys(world.store, prefix="LIB.")


async def test_changes_of_two_processes_at_once_are_both_kept() -> None:
    async with a_world(max_age_s=0) as world:
        new = await world.keys.create(tenant="acme")
        end = world.clock.now() + timedelta(hours=1)

        await asyncio.gather(
            world.keys.rotate(new.record.key_id, old_expires_at=end),
            world.keys.revoke(new.record.key_id),
        )

        records = {each.key_id: each for each in await world.keys.list()}
        assert records[new.record.key_id].revoked_at is not None
        assert records[new.record.key_id].expires_at == end.timestamp()


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.decode("latin-1")))
async def test_any_header_is_a_token_or_refused(text: str) -> None:
    for header in (text, f"Bearer {text}", f"Bearer lib_sk_{text}"):
        with suppress(Unauthenticated):
            assert bearer_token(header) in header


async def test_the_format_of_a_token_decides_and_a_refusal_is_final() -> None:
    async with a_world() as world:
        now = world.clock.now().timestamp()
        tokens = JWTAuthenticator(
            StaticKeys(key_set()), issuer=ISSUER, audience=AUDIENCE, clock=world.clock
        )
        new = await world.keys.create(tenant="acme")
        keys, world.authenticator = world.authenticator, FirstOf(world.authenticator, tokens)  # type: ignore[assignment] - also one

        assert await world.outcome(new.key) == "acme"
        assert await world.outcome(token({}, now)) == "t1"
        assert await world.outcome(token({"sign": "attacker"}, now)) == "signature"
        assert await world.outcome(f"lib_sk_{token({}, now)}") == "format"
        assert await world.outcome("neither") == "format"
        world.authenticator = keys


# -- two processes on each store -------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)  # blocks, so outside of an event loop


class OtherProcess:
    """A server in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout

    async def outcome(self, key: str) -> str:
        self._in.write(f"Bearer {key}\n".encode())
        return (await self._out.readline()).decode().strip()

    def advance(self, seconds: float) -> None:
        self._in.write(f"+{seconds}\n".encode())

    async def end(self) -> None:
        self._in.write(b"\n")
        assert await self._process.wait() == 0


async def test_a_revocation_and_a_rotation_are_seen_by_another_process(
    store_url: str,
) -> None:
    store = await asyncio.to_thread(open_store, store_url)  # may load a driver
    await store.setup()
    keys = ApiKeys(store)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(OTHER_PROCESS),
        store_url,
        "5",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    other = OtherProcess(process)
    first, second = await keys.create(tenant="acme"), await keys.create(tenant="umbrella")
    assert [await other.outcome(each.key) for each in (first, second)] == ["acme", "umbrella"]

    rotated = await keys.rotate(first.record.key_id, old_expires_at=in_an_hour())
    await keys.revoke(second.record.key_id)

    assert await other.outcome(rotated.key) == "acme", "a new key is valid at once"
    other.advance(5)
    assert await other.outcome(second.key) == "revoked"
    assert await other.outcome(first.key) == "acme", "both keys of a rotation are live"
    await keys.revoke(first.record.key_id)
    other.advance(5)
    assert await other.outcome(first.key) == "revoked"
    assert await other.outcome(rotated.key) == "acme"
    await other.end()
    assert await other_uses(keys) == {
        first.record.key_id,
        second.record.key_id,
        rotated.record.key_id,
    }
    await store.close()


def in_an_hour() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - of the machine, as the store's


async def other_uses(keys: ApiKeys) -> set[str]:
    return {each.key_id for each in await keys.list() if each.last_used_at is not None}
