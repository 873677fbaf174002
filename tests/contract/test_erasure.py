"""After a tenant was erased, no byte of it is in logs, blobs, vectors or full-text indexes."""

import asyncio
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib.agent import Agent
from lib.context import Summarize
from lib.engine import Engine
from lib.events import (
    DirectoryBlobStore,
    EventStore,
    MemoryEventStore,
    RunQuery,
)
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.events.tenant import TenantEventStore
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Image, Message, Reply, Text, ToolCall, ToolResult
from lib.memory import Memory, RuleExtractor
from lib.privacy import erase_run, erase_tenant
from lib.testing.agents import make_engine
from lib.testing.event_store import StoreKind
from lib.tools import tool
from lib.vector import (
    LanceDBVectorStore,
    PostgresVectorStore,
    Record,
    SQLiteVectorStore,
    VectorStore,
)
from lib.vector.tenant import TenantVectorStore
from servers import postgres, redis


def _table() -> Any:
    """Return the module that lists the event stores."""
    place = Path(__file__).with_name("test_event_stores.py")
    spec = importlib.util.spec_from_file_location("the_event_stores", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = _table()
EVENT_STORES = cast("dict[str, StoreKind]", TABLE.EVENT_STORES)
STARTS = cast("dict[str, Callable[[], str]]", TABLE.SERVERS)


# -- what there is to look into ----------------------------------------------------------------


def files(place: Path) -> Iterator[bytes]:
    """Yield names and contents of all files."""
    for path in place.rglob("*"):
        yield str(path).encode()
        if path.is_file():
            yield path.read_bytes()


def rows_of_postgres(*_: object) -> Iterator[bytes]:
    """Yield every row of every table of every database, as `pg_dump` would."""
    import psycopg
    from psycopg import sql

    driver: Any = psycopg
    with driver.connect(postgres.url()) as connection:
        databases = connection.execute(
            "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate"
        ).fetchall()
    for (database,) in databases:
        with driver.connect(postgres.url(), dbname=database) as connection:
            tables = connection.execute(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT LIKE 'pg\\_%%'"
                " AND schemaname <> 'information_schema'"
            ).fetchall()
            for schema, table in tables:
                named = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(schema, table))
                yield f"{schema}.{table}".encode()
                with connection.cursor().copy(named) as copied:
                    yield b"".join(map(bytes, copied))


def keys_of_redis(*_: object) -> Iterator[bytes]:
    """Yield every key and what it holds, as it would be written to the disk."""
    import redis as driver

    client: Any = cast("Any", driver).Redis.from_url(redis.url())
    client.config_set("rdbcompression", "no")
    for key in client.scan_iter():
        yield key
        yield client.dump(key) or b""
    client.close()


def contents_of_memory(store: EventStore, _: Path) -> Iterator[bytes]:
    assert isinstance(store, MemoryEventStore)
    yield repr(vars(store)).encode()


def log_files(_: EventStore, place: Path) -> Iterator[bytes]:
    for path in place.glob("log.db*"):
        if path.is_file():  # the folder of addresses for live pieces holds sockets alone
            yield path.read_bytes()


LOOKS: dict[str, Callable[[Any, Path], Iterator[bytes]]] = {
    "memory": contents_of_memory,
    "postgres": rows_of_postgres,
    "redis": keys_of_redis,
    "sqlite": log_files,
}
"""How to look into a store whose name in the table begins so; each one needs a line here."""


def look_of(name: str) -> Callable[[Any, Path], Iterator[bytes]]:
    return next(look for key, look in LOOKS.items() if name.startswith(key))


def times(marker: str, pieces: Iterator[bytes]) -> int:
    """Return how often the marker is found, in any case of its letters."""
    return sum(piece.lower().count(marker.lower().encode()) for piece in pieces)


# -- what a tenant leaves ----------------------------------------------------------------------


@dataclass(frozen=True)
class Customer:
    """One tenant, whose name is in everything that it does."""

    word: str

    @property
    def tenant(self) -> str:
        return f"t-{self.word}"

    def picture(self, of: str) -> Image:
        return Image(data=f"{self.word} {of}".encode() * 30_000, media_type="image/png")

    def think(self, messages: Sequence[Message]) -> Reply:
        if any(isinstance(part, ToolResult) for part in messages[-1].parts):
            return Reply((Text(f"answer {self.word}"), self.picture("drawn")))
        return Reply((ToolCall("c1", "look", {"where": self.word}),), stop="tool_calls")

    async def work(self, engine: Engine, store: EventStore) -> None:
        """Leave traces wherever a tenant can."""
        options: dict[str, Any] = {"tenant": self.tenant, "user": f"u-{self.word}"}
        for number in range(3):
            question = Message.user(f"{number} {self.word}", self.picture("shown"))
            started = await engine.start(question, idempotency_key=f"{number}", **options)
            await started.result()
            score = {"name": "good", "value": 1.0, "comment": self.word}
            await engine.signal(started.id, k.EVAL_SCORE, score, user=self.word)
            await store.set_mark(run_mark(started.id, "dead/group/1"), self.word)
        session = await engine.start_session(**options)
        await (await session.send(f"say {self.word}")).result()
        await session.send(f"and {self.word}")
        await TenantEventStore(store, self.tenant).set_mark("cursor", self.word)

    async def talk(self, agent: Agent, engine: Engine) -> str:
        """Say more than a request may hold, and something to remember; return the run."""
        talked = [Message.user(self.word * 20), Message.assistant("x" * 400)] * 6
        talk = [*talked, Message.user(f"I live in {self.word}.")]
        run = await agent.start(engine, talk, tenant=self.tenant, user="ann")
        assert (await run.result()).outcome == "COMPLETED"
        return run.id

    async def remember(self, vectors: VectorStore) -> TenantVectorStore:
        """Leave records, of which some are replaced and some deleted."""
        view, random = TenantVectorStore(vectors, self.tenant), Random(7)
        for space in (view, view.sibling("/memory")):
            for turn in range(3):
                texts = [
                    f"{self.word} {turn} {self.word}{number} {'x' * random.randrange(700)}"
                    for number in range(40)
                ]
                records = [
                    Record(f"{self.word}-{number}", [random.random(), 1.0], text, {"of": self.word})
                    for number, text in enumerate(texts)
                ]
                await space.upsert(records)
            await space.delete([f"{self.word}-{number}" for number in range(5)])
        return view


def model_of(*customers: Customer) -> FunctionClient:
    def think(messages: Sequence[Message]) -> Reply:
        text = str(messages)
        return next(one for one in customers if one.word in text).think(messages)

    return FunctionClient(think, modalities=frozenset({"text", "image"}))


@tool
def look(where: str) -> str:
    """Look somewhere.

    Args:
        where: the place.
    """
    return f"seen {where}"


@pytest.fixture
def customers(tmp_path: Path) -> tuple[Customer, Customer]:
    own = sha256(str(tmp_path).encode()).hexdigest()
    return Customer(f"mark{own[:12]}"), Customer(f"other{own[12:24]}")


@pytest.mark.parametrize("name", list(EVENT_STORES))
async def test_no_byte_of_an_erased_tenant_is_left(
    name: str, tmp_path: Path, customers: tuple[Customer, Customer]
) -> None:
    gone, stays = customers
    if start := STARTS.get(name):
        start()
    store = EVENT_STORES[name].open(tmp_path, SYSTEM_CLOCK)
    beside = tmp_path / "beside"
    beside.mkdir()
    looks = look_of(name)

    def left(customer: Customer) -> tuple[int, int]:
        """Return how often a customer is found in the log, and in what is beside it."""
        return times(customer.word, looks(store, tmp_path)), times(customer.word, files(beside))

    blobs = DirectoryBlobStore(beside / "blobs")
    vectors = SQLiteVectorStore(beside / "vectors.db", dimension=2)
    agent = make_engine(model_of(gone, stays), look, store=store, blobs=blobs)
    async with agent as engine:
        for customer in customers:
            await customer.work(engine, store)
        views = [await customer.remember(vectors) for customer in customers]
        contents = len(await blobs.stored())
        before = await asyncio.to_thread(left, gone)
        erased = await erase_tenant(store, gone.tenant, blobs=blobs, vectors=views[:1], force=True)

        assert before[0] > 100 or name == "sqlite in memory"
        assert before[1] > 100
        assert (erased.blobs, erased.vectors, erased.runs >= 5) == (contents // 2, 70, True)
        assert await store.runs(RunQuery(tenant=gone.tenant)) == []
        assert (await verify_store(store, blobs=blobs, deep=True)).faults == []
        if name != "sqlite":  # whose last process writes its file anew
            assert await asyncio.to_thread(left, gone) == (0, 0)
    await vectors.close()

    assert left(gone) == (0, 0)
    assert all(left(stays)) or name == "sqlite in memory"


@pytest.mark.parametrize("name", list(EVENT_STORES))
async def test_no_byte_of_what_was_remembered_and_summed_up_is_left(
    name: str, tmp_path: Path, customers: tuple[Customer, Customer]
) -> None:
    """Runs of a user are erased: their logs, the facts from them, and what points to summaries."""
    gone, stays = customers
    if start := STARTS.get(name):
        start()
    store = EVENT_STORES[name].open(tmp_path, SYSTEM_CLOCK)
    beside = tmp_path / "beside"
    beside.mkdir()
    looks = look_of(name)
    memory = Memory(beside / "facts.db", extractor=RuleExtractor())

    def left(customer: Customer) -> tuple[int, int]:
        return times(customer.word, looks(store, tmp_path)), times(customer.word, files(beside))

    def think(messages: Sequence[Message]) -> str:
        word = re.findall("mark[0-9a-f]{12}|other[0-9a-f]{12}", str(messages))[0]
        return f"They spoke of {word}." if "You keep the memory" in messages[0].text else word

    agent = Agent(FunctionClient(think, keep_calls=0), memory=memory, context=[Summarize(600)])
    async with agent.engine(store) as engine:
        ours, others = [[await one.talk(agent, engine) for _ in "12"] for one in customers]
        facts = await memory.list(tenant=gone.tenant, user="ann")
        before = await asyncio.to_thread(left, gone)
        for run_id in ours:
            await erase_run(store, run_id, memories=[memory])

        assert before[0] > 10 or name == "sqlite in memory"
        assert (len(facts), before[1] > 0) == (1, True)
        marks = str(await store.marks(""))
        assert not any(run_id in marks for run_id in ours)
        assert any(run_id in marks for run_id in others)
        assert await memory.list(tenant=gone.tenant, user="ann") == []
        if name != "sqlite":  # whose last process writes its file anew
            assert await asyncio.to_thread(left, gone) == (0, 0)
    await memory.aclose()

    assert left(gone) == (0, 0)
    assert all(left(stays)) or name == "sqlite in memory"


VECTOR_STORES: dict[str, Callable[[Path], Any]] = {
    "sqlite": lambda place: SQLiteVectorStore(place / "vectors.db", dimension=2),
    "lancedb": lambda place: LanceDBVectorStore(place / "lancedb", dimension=2),
    "postgres": lambda place: PostgresVectorStore(
        postgres.url(), dimension=2, table=f"t{sha256(str(place).encode()).hexdigest()[:32]}"
    ),
}


@pytest.mark.parametrize("name", list(VECTOR_STORES))
async def test_no_byte_of_an_erased_tenants_records_is_left(
    name: str, tmp_path: Path, customers: tuple[Customer, Customer]
) -> None:
    gone, stays = customers
    if name == "postgres":
        postgres.url()
    vectors = VECTOR_STORES[name](tmp_path)

    def left(customer: Customer) -> int:
        pieces = rows_of_postgres() if name == "postgres" else files(tmp_path)
        return times(customer.word, pieces)

    await vectors.setup()
    views = [await customer.remember(vectors) for customer in customers]
    assert await asyncio.to_thread(left, gone) > 100
    await views[0].erase()
    await views[0].erase()

    assert await asyncio.to_thread(left, gone) == 0
    assert [await view.count_all() for view in views] == [0, 70]
    await vectors.close()

    assert left(gone) == 0
    assert left(stays) > 0
