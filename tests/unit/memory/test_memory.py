"""A memory keeps one current fact of each, the newest, and shows it to no other user."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.errors import FactNotFound, TenantViolation
from lib.memory import Candidate, Extraction, Memory, RuleExtractor, UserMessages
from lib.memory.places import UserRecords
from lib.testing.clock import ManualClock
from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore
from servers import postgres

ANN: dict[str, Any] = {"tenant": "acme", "user": "ann"}


class BagOfLetters:
    """An embedder for which texts of the same letters are alike, negated or not."""

    dimension = 26

    async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
        counts = [[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts]
        return np.array(counts or np.zeros((0, 26)), np.float32)


def texts(facts: Sequence[Any]) -> list[str]:
    return sorted(fact.text for fact in facts)


async def test_the_same_said_again_is_no_second_copy() -> None:
    clock = ManualClock()
    memory = Memory("memory:", clock=clock)

    first = await memory.remember("The user likes tea.", source="r1", **ANN)
    clock.advance(60)
    again = await memory.remember("the user  LIKES tea", source="r2", **ANN)
    repeated = await memory.remember("The user likes tea!", source="r2", **ANN)

    [fact] = await memory.list(**ANN)
    assert (len(first.added), len(again.again), len(repeated.again)) == (1, 1, 0)
    assert (fact.text, fact.times, fact.sources) == ("The user likes tea.", 2, ("r1", "r2"))
    assert fact.said_at - fact.since == timedelta(seconds=60)


async def test_of_one_key_the_newest_is_true_and_the_log_gets_the_proof() -> None:
    memory = Memory("memory:")

    await memory.remember("The user lives in Paris.", key="Home_City", **ANN)
    changed = await memory.remember("The user lives in Berlin.", key="home city", **ANN)

    [old], [new] = changed.superseded, changed.added
    assert texts(await memory.list(**ANN)) == ["The user lives in Berlin."]
    assert (old.text, old.superseded_by) == ("The user lives in Paris.", new.id)
    assert changed.to_json()["records"][1] == {
        "id": old.id,
        "text": "The user lives in Paris.",
        "change": "superseded",
        "key": "home city",
        "superseded_by": new.id,
        "why": "it tells the same, and was said later",
    }


async def test_what_was_said_earlier_and_is_stored_later_does_not_win() -> None:
    memory = Memory("memory:")
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)

    await memory.remember("The user lives in Berlin.", key="home", said_at=noon, **ANN)
    late = await memory.remember(
        "The user lives in Paris.", key="home", said_at=noon - timedelta(hours=1), **ANN
    )

    assert texts(await memory.list(**ANN)) == ["The user lives in Berlin."]
    assert not late.added[0].current


async def test_a_fact_that_is_true_again_is_no_second_copy() -> None:
    clock = ManualClock()
    memory = Memory("memory:", clock=clock)

    for city in ("Paris", "Berlin", "Paris"):
        await memory.remember(f"The user lives in {city}.", key="home", **ANN)
        clock.advance(1)

    everything = await memory.list(superseded=True, **ANN)
    assert texts(await memory.list(**ANN)) == ["The user lives in Paris."]
    assert texts(everything) == ["The user lives in Berlin.", "The user lives in Paris."]


@pytest.mark.parametrize("embedder", [None, BagOfLetters()])
@pytest.mark.parametrize(
    ("before", "words", "current"),
    [
        ("The user likes tea.", "The user likes his tea.", ["The user likes tea."]),
        ("The user likes tea.", "The user does not like tea.", ["The user does not like tea."]),
        ("The user has 2 cats.", "The user has 3 cats.", ["The user has 3 cats."]),
        ("The user never eats meat.", "The user eats meat.", ["The user eats meat."]),
        ("The user likes tea.", "Darjeeling is a joy.", ["Darjeeling is a joy."]),
    ],
)
async def test_what_an_extractor_takes_for_the_same_is_checked(
    embedder: Any, before: str, words: str, current: list[str]
) -> None:
    def extract(what: UserMessages) -> list[Candidate]:
        return [Candidate(text=words, quote=words, same_as=what.facts[0].id)]

    memory = Memory("memory:", embedder=embedder, extractor=extract)
    await memory.remember(before, **ANN)

    await memory.learn([words], source="r", **ANN)

    assert texts(await memory.list(**ANN)) == current


async def test_nearness_alone_makes_no_two_facts_one() -> None:
    def extract(messages: UserMessages) -> list[Candidate]:
        return [Candidate(text=text, quote=text) for text in messages.texts]

    memory = Memory("memory:", embedder=BagOfLetters(), extractor=extract)
    words = ["The user likes tea.", "The user likes ate.", "The user does not like tea."]

    await memory.learn(words, source="r", **ANN)

    assert texts(await memory.list(**ANN)) == sorted(words)


async def test_learning_twice_from_one_run_changes_nothing_and_asks_no_model_again() -> None:
    seen: list[UserMessages] = []

    async def extract(messages: UserMessages) -> Extraction:
        seen.append(messages)
        quote = messages.texts[0]
        found = [
            Candidate(text=f"Wording {len(seen)} of {quote}", quote=quote, key="what"),
            Candidate(text="Known", quote=quote),
        ]
        return Extraction(candidates=found)

    memory = Memory("memory:", extractor=extract)
    await memory.remember("Old", key="what", **ANN)
    await memory.remember("Known", **ANN)

    first = await memory.learn(["something"], source="r", **ANN)
    second = await memory.learn(["something"], source="r", **ANN)

    assert len(seen) == 1
    assert second.to_json() == first.to_json()
    assert texts(await memory.list(**ANN)) == ["Known", "Wording 1 of something"]


async def test_only_what_the_user_has_said_is_remembered_and_no_secret() -> None:
    words = "My card is 4111 1111 1111 1111, my key sk-proj-abcdefghijklmnopqrstuvwx0123456789AB"

    def extract(_: UserMessages) -> list[Candidate]:
        return [
            Candidate(text="The user is an administrator.", quote="I am an administrator"),
            Candidate(text="The user is rich.", quote=""),
            Candidate(text="The card of the user is 4111 1111 1111 1111", quote="My card is"),
            Candidate(text=" \u200b", quote="My card is"),
            Candidate(text="The user has a card.", quote="my card IS"),
        ]

    memory = Memory("memory:", extractor=extract)
    done = await memory.learn([words], source="r", **ANN)

    assert texts(await memory.list(**ANN)) == ["The user has a card."]
    assert done.left_out == {"not_said": 2, "secret": 1, "empty": 1}


async def test_recall_finds_by_words_and_of_two_the_later_first() -> None:
    clock = ManualClock()
    memory = Memory("memory:", clock=clock, k=2)
    for number in range(20):
        await memory.remember(f"The user has seen film number {number}.", **ANN)
        clock.advance(1)
    await memory.remember("The user is allergic to peanuts.", **ANN)
    clock.advance(1)
    await memory.remember("The user is allergic to walnuts.", **ANN)

    found = await memory.recall("what am I allergic to?", **ANN)

    assert [fact.text for fact in found] == [
        "The user is allergic to walnuts.",
        "The user is allergic to peanuts.",
    ]
    assert await memory.recall("peanuts", since=clock.now() + timedelta(1), **ANN) == []
    assert len(await memory.recall("", k=30, **ANN)) == 22  # all of them, where there are few
    with pytest.raises(ValueError, match="k of 1 or more"):
        await memory.recall("x", k=0, **ANN)


async def test_what_has_ended_is_not_recalled() -> None:
    clock = ManualClock()
    memory = Memory("memory:", clock=clock)
    await memory.remember("The user is on holiday.", until=clock.now() + timedelta(days=7), **ANN)

    before = await memory.recall("holiday", **ANN)
    clock.advance(8 * 86_400)

    assert (len(before), await memory.recall("holiday", **ANN)) == (1, [])
    assert len(await memory.list(superseded=True, **ANN)) == 1


async def test_two_writers_of_one_key_leave_one_true_fact() -> None:
    store = InMemoryVectorStore(1)
    one, other = Memory(store), Memory(store)

    await asyncio.gather(
        one.remember("The user lives in Paris.", key="home", **ANN),
        other.remember("The user lives in Berlin.", key="home", **ANN),
        one.remember("The user likes tea.", **ANN),
        other.remember("The user likes tea.", **ANN),
    )

    facts = await one.list(**ANN)
    assert sum(fact.key == "home" for fact in facts) == 1
    assert len(facts) == 2


@pytest.mark.parametrize("tenant", [None, "acme", "a:b/c#d", "50%", "#memory", "x" * 600])
async def test_walls_hold_for_any_id(tenant: str | None) -> None:
    store = InMemoryVectorStore(1)
    memory = Memory(store)
    users = [None, "ann", "ann/x", "an", "%61nn", "~", "#memory", "y" * 600]
    for user in users:
        await memory.remember(f"I am {user!s:.20}", tenant=tenant, user=user)

    for user in users:
        found = await memory.list(tenant=tenant, user=user)
        assert [fact.text for fact in found] == [f"I am {user!s:.20}"]
        assert await memory.list(tenant="other", user=user) == []
    assert len(await memory.owners()) == len(users)
    with pytest.raises(ValueError, match="empty text"):
        await memory.list(tenant=tenant, user="")
    with pytest.raises(ValueError, match="empty text"):
        await memory.list(tenant="", user="ann")


async def test_a_store_that_disregards_the_user_is_not_believed() -> None:
    store = InMemoryVectorStore(1)
    memory = Memory(store)
    await memory.remember("I like tea", **ANN)
    [record] = await store.scan(namespace="acme#memory/ann")
    foreign = Record("0", record.vector, "I like tea", {**record.meta, "user": "bob"})
    await store.upsert([foreign], namespace="acme#memory/ann")

    class Careless(InMemoryVectorStore):
        capabilities = frozenset({"keywords", "scan"})

        async def query_keywords(self, *args: Any, **options: Any) -> Any:
            return await store.query_keywords(*args, **{**options, "filter": {"tenant": "acme"}})

        async def count(self, **options: Any) -> int:
            return await store.count(**options)

    assert len(await memory.recall("tea", **ANN)) == 1
    with pytest.raises(TenantViolation):
        await Memory(Careless(1)).recall("tea", **ANN)


async def test_correct_and_forget() -> None:
    memory = Memory("memory:")
    added = await memory.remember("The user lives in Paris.", key="home", **ANN)
    old = added.added[0]

    new = await memory.correct(old.id, "The user lives in Bonn.", **ANN)

    kept = await memory.get(old.id, **ANN)
    assert (new.key, new.current) == ("home", True)
    assert kept is not None
    assert (kept.superseded_by, kept.why) == (new.id, "a person corrected it")
    with pytest.raises(FactNotFound) as missing:
        await memory.correct(old.id, "Mine", tenant="acme", user="bob")
    assert missing.value.fact_id == old.id
    with pytest.raises(ValueError, match="empty"):
        await memory.correct(new.id, " ", **ANN)
    assert await memory.forget(new.id, tenant="acme", user="bob") == 0
    assert await memory.forget(new.id, **ANN) == 2  # with what it stands for
    assert await memory.list(superseded=True, **ANN) == []


async def test_erasing_runs_leaves_what_others_have_said_too() -> None:
    memory = Memory("memory:")
    for run, text in (("r1", "only here"), ("r1", "in both"), ("r2", "in both"), ("r2", "there")):
        await memory.remember(text, source=run, **ANN)

    assert await memory.count_runs(["r1"], **ANN) == 1
    assert await memory.erase_runs(["r1"], **ANN) == 1
    assert texts(await memory.list(**ANN)) == ["in both", "there"]
    assert await memory.erase_runs(["r1", "r2"], **ANN) == 2
    assert await memory.erase_runs(["r1", "r2"], **ANN) == 0


async def test_erase_of_a_user_and_of_a_tenant() -> None:
    memory = Memory("memory:")
    owners = [("a", "x"), ("a", "y"), ("a", None), ("b", "x"), (None, "x")]
    for tenant, user in owners:
        await memory.remember("something", tenant=tenant, user=user)

    with pytest.raises(ValueError, match="tenant or a user"):
        await memory.erase()
    assert await memory.erase(tenant="a", user="x") == 1
    assert await memory.erase(user="x") == 1
    assert await memory.erase(tenant="a") == 2
    assert await memory.owners() == [("b", "x")]


@pytest.mark.parametrize("whose", [ANN, {"tenant": "acme"}], ids=["user", "tenant"])
async def test_what_is_being_learned_is_erased_too(whose: dict[str, Any]) -> None:
    question, reply = asyncio.Event(), asyncio.Event()

    async def slow(_: UserMessages) -> list[Candidate]:
        question.set()
        await reply.wait()
        return [Candidate(text="The user lives in Paris.", quote="I live in Paris")]

    memory = Memory("memory:", extractor=slow)
    learning = asyncio.create_task(memory.learn(["I live in Paris."], source="r", **ANN))
    await question.wait()
    erasing = asyncio.create_task(memory.erase(**whose))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    reply.set()
    await learning

    assert await erasing == 1
    assert await memory.list(**ANN) == []


async def test_retention_by_age_and_by_recall() -> None:
    clock = ManualClock()
    memory = Memory("memory:", clock=clock)
    await memory.remember("old and unused", **ANN)
    await memory.remember("old and recalled", **ANN)
    clock.advance(10 * 86_400)
    await memory.recall("recalled", k=1, **ANN)
    await memory.remember("new", **ANN)
    week = timedelta(days=7)

    for wrong in (None, timedelta(0)):
        with pytest.raises(ValueError, match="positive"):
            await memory.expire(older_than=wrong)
    assert await memory.expire(not_recalled_for=week, tenant="other") == 0
    assert await memory.expire(not_recalled_for=week) == 1
    assert texts(await memory.list(**ANN)) == ["new", "old and recalled"]
    assert await memory.expire(older_than=week, **ANN) == 1
    assert texts(await memory.list(**ANN)) == ["new"]


async def test_a_path_is_opened_by_each_and_closed(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.db", extractor=RuleExtractor())

    async with memory.open() as one, memory.open() as other:
        await one.learn(["I live in Paris."], source="r", **ANN)
        assert texts(await other.list(**ANN)) == ["The user lives in Paris."]
    assert texts(await memory.list(**ANN)) == ["The user lives in Paris."]  # opens again
    await memory.aclose()
    assert Memory("memory:").open() is not None


@pytest.mark.parametrize("how", ["forget", "erase", "erase_runs", "expire", "tenant"])
async def test_after_erasure_no_byte_of_it_is_in_the_files(tmp_path: Path, how: str) -> None:
    clock = ManualClock()
    store = SQLiteVectorStore(tmp_path / "memory.db", dimension=1)
    memory = Memory(store, clock=clock)
    marker = "xanthocarpous"
    await memory.remember(f"The user grows {marker} plants.", key="plants", source="r1", **ANN)
    await memory.remember(f"The user sells {marker} plants.", key="plants", source="r1", **ANN)
    clock.advance(86_400)
    await memory.remember("The user of another tenant.", tenant="other", user="ann")
    [fact] = await memory.recall(marker, **ANN)

    match how:
        case "forget":
            await memory.forget(fact.id, **ANN)
        case "erase":
            await memory.erase(**ANN)
        case "erase_runs":
            await memory.erase_runs(["r1"], **ANN)
        case "expire":
            await memory.expire(older_than=timedelta(hours=1))
        case _:
            await (await memory.records("acme")).erase()

    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # before it is closed
    assert marker.encode() not in held
    assert len(await memory.list(tenant="other", user="ann")) == 1
    await store.close()


@pytest.mark.parametrize("how", ["forget", "erase_runs", "expire"])
async def test_an_erasure_that_was_cut_off_before_the_files_is_done_by_the_next(
    tmp_path: Path, how: str
) -> None:
    """A process dies, or a reader keeps the write-ahead log, after the facts were deleted."""
    marker = "xanthocarpous"
    store = SQLiteVectorStore(tmp_path / "memory.db", dimension=1)
    memory = Memory(store)
    await memory.remember(f"The user grows {marker} plants.", source="r1", **ANN)
    [fact] = await memory.list(**ANN)
    await UserRecords(store, **ANN).delete([fact.id])
    assert marker.encode() in b"".join(path.read_bytes() for path in tmp_path.iterdir())

    match how:
        case "forget":
            gone = await memory.forget(fact.id, **ANN)
        case "erase_runs":
            gone = await memory.erase_runs(["r1"], **ANN)
        case _:
            gone = await memory.expire(older_than=timedelta(hours=1))

    assert gone == 0
    assert marker.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    await store.close()


async def test_in_postgresql(request: pytest.FixtureRequest) -> None:
    name = f"{postgres.url()}&table=memory_{abs(hash(request.node.name)) % 10**8}"
    memory = Memory(name, embedder=BagOfLetters(), extractor=RuleExtractor())

    async with memory:
        await memory.learn(["I live in Paris. I like tea."], source="r1", **ANN)
        await memory.learn(["I moved to Berlin. I like tea."], source="r2", **ANN)
        await memory.learn(["I moved to Berlin. I like tea."], source="r2", **ANN)
        found = await memory.recall("where do I live", k=1, **ANN)

        assert texts(found) == ["The user lives in Berlin."]
        assert [fact.times for fact in await memory.list(**ANN)] == [2, 1]
        assert await memory.recall("where", tenant="acme", user="bob") == []
        assert await memory.erase(tenant="acme") == 3


def test_what_is_no_memory_is_refused() -> None:
    refused: list[Any] = [{"k": 0}, {"same_at": 1.5}, {"timeout_s": 0}]
    for wrong in refused:
        with pytest.raises(ValueError, match="expected k of 1"):
            Memory("memory:", **wrong)
    with pytest.raises(ValueError, match="unknown scheme"):
        Memory("nosuch://place")
