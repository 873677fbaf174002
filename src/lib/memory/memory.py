"""`Memory`: remembers facts about users in a vector store, and recalls them."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import numpy as np

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import FactNotFound, StoreError, VectorError
from lib.llm import LLMClient
from lib.memory.changes import (
    CORRECTED,
    Candidate,
    Changes,
    Origin,
    Remembered,
    remembered_before,
)
from lib.memory.extract import Extraction, Extractor, ModelExtractor, UserMessages, grounded
from lib.memory.facts import Fact, fact_id, fact_of, likeness, tidy, tidy_key
from lib.memory.places import UserRecords, purge, tenant_records, tenants_of, users_of
from lib.privacy.detect import CardDetector, SecretDetector, find
from lib.vector import Embedder, EmbeddingIndex, Hit, Record, VectorStore
from lib.vector.contract import is_searchable_by_keywords
from lib.vector.tenant import TenantVectorStore
from lib.vector.urls import open_vector_store

MAX_QUERY_CHARS: Final = 2_000
MAX_SHOWN: Final = 30
"""Known facts that an extractor is shown at most."""

_log = logging.getLogger("lib.memory")

_SECRETS: Final = (SecretDetector(), CardDetector())
_CURRENT: Final = {"current": True}
_DAY: Final = timedelta(days=1)
_CANDIDATES: Final = 4  # for each fact that is wanted
_RANK_CONSTANT: Final = 60
_RECENCY: Final = 0.25
"""The weight of the order by time, beside that of the search."""


class Memory:
    """Facts about users, in any vector store.

    `Agent(model, memory=Memory("memory.db"))` recalls before it answers and remembers afterwards.
    By hand: `remember`, `recall`, `list`, `correct`, `forget`, `erase`, `expire`.

    A fact belongs to one user of one tenant and is found by no other. The same fact said again
    raises its date and its count. Of facts that contradict each other the one that was said last
    is true; the others are kept as superseded, until they are forgotten.
    """

    def __init__(
        self,
        store: VectorStore | str | os.PathLike[str],
        *,
        embedder: Embedder | None = None,
        extractor: Extractor | None = None,
        k: int = 8,
        same_at: float = 0.8,
        shared: bool = False,
        learns: bool = True,
        timeout_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe a memory; nothing is opened before its first use.

        Args:
            store: a vector store, which stays yours to close, or a path or URL of one (see
                `lib.vector.urls.open_vector_store`), which each engine opens for itself.
            embedder: finds facts by meaning and words. Without one they are found by words alone,
                in a store of vectors with one dimension.
            extractor: finds facts in what a user has said; a `RuleExtractor` or a function. None
                asks the agent's model, as `ModelExtractor()` does.
            k: how many facts an agent recalls at most.
            same_at: cosine similarity (share of common words without an embedder, and there 0.5 at
                most) from which on two facts may say the same, if the extractor says so, too.
            shared: runs without a user share what belongs to their tenant; otherwise they have no
                memory.
            learns: False for agents that only recall.
            timeout_s: seconds after which a run goes on without its memory.
            clock: the time.

        Raises:
            ValueError: an argument is out of range, or the path or URL names no store.
        """
        if k < 1 or not 0 <= same_at <= 1 or timeout_s <= 0:
            raise ValueError(
                "expected k of 1 or more, same_at from 0 to 1 and timeout_s above 0, got "
                f"{k}, {same_at} and {timeout_s}"
            )
        self.k: int = k
        self.shared: bool = shared
        self.learns: bool = learns
        self.timeout_s: float = timeout_s
        self._embedder = embedder or _WordsAlone()
        self._by_words = embedder is None
        self._extractor: Extractor = extractor or ModelExtractor()
        self._same_at = min(same_at, 0.5) if embedder is None else same_at
        self._clock = clock
        self._place: str | None = None
        self._store: VectorStore | None = None
        if isinstance(store, str | os.PathLike):
            self._place = os.fspath(store)
            self._store = self._made()  # refuses what is no name
            if self._place in ("memory:", ":memory:"):
                self._place = None
        else:
            self._store = store
        self._is_set_up = False
        self._turns: WeakValueDictionary[tuple[str | None, str | None], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def _made(self) -> VectorStore:
        assert self._place is not None  # noqa: S101 - a store by its name
        return open_vector_store(self._place, dimension=self._embedder.dimension)

    @property
    def client(self) -> LLMClient | None:
        """The model of its extractor, None if that has none of its own."""
        return getattr(self._extractor, "client", None)

    def config(self) -> dict[str, bool]:
        """Return what a run remembers of it."""
        return {"learns": self.learns, "shared": self.shared}

    # -- life ------------------------------------------------------------------------------

    def open(self) -> Memory:
        """Return the same memory with a connection of its own, for one engine or event loop.

        It is this very object where the store is not named by a path or URL.
        """
        if self._place is None:
            return self
        opened = copy.copy(self)
        opened._forget_connection()  # noqa: SLF001 - of the same class
        return opened

    def _forget_connection(self) -> None:
        self._store, self._is_set_up, self._turns = None, False, WeakValueDictionary()

    async def aclose(self) -> None:
        """Close a store that was named by a path or URL; the next use opens it again."""
        if self._place is not None and self._store is not None:
            store, self._store, self._is_set_up = self._store, None, False
            await store.close()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _opened(self) -> VectorStore:
        if self._store is None:
            self._store = self._made()
        if not self._is_set_up:
            await self._store.setup()
            self._is_set_up = True
        return self._store

    async def _of(self, tenant: str | None, user: str | None) -> UserRecords:
        return UserRecords(await self._opened(), tenant=tenant, user=user)

    @asynccontextmanager
    async def _writing(self, tenant: str | None, user: str | None) -> AsyncGenerator[UserRecords]:
        """Open the records of a user for what reads them before it writes: one at a time here."""
        lock = self._turns.setdefault((tenant, user), asyncio.Lock())
        async with lock:
            yield await self._of(tenant, user)

    # -- remembering -----------------------------------------------------------------------

    async def remember(
        self,
        text: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        key: str = "",
        replaces: Sequence[str] = (),
        source: str = "",
        said_at: datetime | None = None,
        confidence: float = 1.0,
        until: datetime | None = None,
    ) -> Remembered:
        """Remember one fact, as it is; safe to repeat.

        Args:
            text: the fact, in one sentence, cut to 500 characters.
            tenant: whose memory it enters.
            user: the person that it is about; None for what belongs to the tenant.
            key: see `Fact`: another fact of this key is superseded.
            replaces: the ids of facts that it contradicts.
            source: the id of the run that it comes from, for `erase_runs`.
            said_at: when it was said; None for now.
            confidence: 0 to 1.
            until: from when on it is no longer true.

        Raises:
            ValueError: there is no text, or the tenant or the user is an empty text.
            VectorError: the store refuses it.
        """
        candidate = Candidate(
            text=_checked(text), key=key, replaces=replaces, confidence=confidence, until=until
        )
        origin = Origin(tenant=tenant, user=user, source=source, said_at=said_at or self._now())
        async with self._writing(tenant, user) as records:
            return await self._apply(records, [candidate], origin)

    async def learn(
        self,
        texts: Sequence[str],
        *,
        source: str,
        tenant: str | None = None,
        user: str | None = None,
        said_at: datetime | None = None,
        client: LLMClient | None = None,
    ) -> Remembered:
        """Find facts in what a user has said, and remember them.

        Repeated for the same source it changes nothing and returns what it has changed before: a
        call that was cut off leaves all of its facts or none.

        Args:
            texts: the user's own words, message by message. Give it no results of tools, no
                documents and no words of agents: they are taken for the user's.
            source: the id of the run in which they were said.
            tenant: whose memory it is.
            user: the person; None for what belongs to the tenant.
            said_at: when; None for now.
            client: the model to ask in place of the extractor's own.

        Raises:
            LLMError: the extractor's model failed.
            VectorError: the store failed.
            ValueError: the source, the tenant or the user is an empty text.
            Exception: whatever an extractor of yours raises.
        """
        if not source:
            raise ValueError("expected the id of a run as source, got an empty text")
        origin = Origin(tenant=tenant, user=user, source=source, said_at=said_at or self._now())
        async with self._writing(tenant, user) as records:
            if before := await _of_source(records, source):
                return remembered_before(before, source)
            texts = [text for text in texts if text.strip()]
            if not texts:
                return Remembered()
            shown = await self._search(records, "\n".join(texts), MAX_SHOWN)
            found = self._extractor(
                UserMessages(texts=texts, facts=shown, said_at=origin.said_at, client=client)
            )
            extraction = await found if isawaitable(found) else found
            if not isinstance(extraction, Extraction):
                extraction = Extraction(candidates=list(extraction))
            candidates, left_out = _storable(extraction.candidates, texts, origin)
            done = await self._apply(records, candidates, origin, shown)
        return replace(
            done,
            left_out=left_out,
            usage=extraction.usage,
            model=extraction.model,
            provider=extraction.provider,
        )

    async def _apply(
        self,
        records: UserRecords,
        candidates: Sequence[Candidate],
        origin: Origin,
        shown: Iterable[Fact] = (),
        *,
        why: str | None = None,
    ) -> Remembered:
        """Compare candidates with what is known, and store what that changes in one write."""
        if not candidates:
            return Remembered()
        there = {each.id: each for each in await self._touched(records, candidates, origin, shown)}
        vectors = await self._vectors([tidy(each.text) for each in candidates])

        def is_near(text: str, fact: Fact) -> bool:
            if self._by_words:
                return likeness(text, fact.text) >= self._same_at
            return _cosine(vectors[text], there[fact.id].vector) >= self._same_at

        facts = [fact_of(each.id, each.text, each.meta) for each in there.values()]
        changes = Changes(facts, origin, is_near)
        for candidate in candidates:
            changes.add(candidate, **({} if why is None else {"why": why}))
        await records.upsert(
            Record(
                fact.id,
                there[fact.id].vector if fact.id in there else vectors[fact.text],
                fact.text,
                fact.to_meta(),
            )
            for fact in changes.changed
        )
        return changes.remembered()

    async def _touched(
        self,
        records: UserRecords,
        candidates: Sequence[Candidate],
        origin: Origin,
        shown: Iterable[Fact],
    ) -> Sequence[Record]:
        """Return the records that candidates may meet."""
        own = [
            fact_id(tidy(each.text), tenant=origin.tenant, user=origin.user) for each in candidates
        ]
        named = [name for each in candidates for name in (each.same_as, *each.replaces) if name]
        ids = dict.fromkeys([*own, *named, *(fact.id for fact in shown)])
        found = await records.get(list(ids))
        if keys := sorted({key for each in candidates if (key := tidy_key(each.key))}):
            found += [each async for each in records.read({**_CURRENT, "key": {"$in": keys}})]
        return found

    async def _vectors(self, texts: Sequence[str]) -> Mapping[str, Any]:
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, await self._embedder.embed(distinct), strict=True))

    # -- recalling -------------------------------------------------------------------------

    async def recall(
        self,
        query: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        k: int | None = None,
        since: datetime | None = None,
    ) -> Sequence[Fact]:
        """Return the current facts that are most relevant to a query, best first.

        Found by meaning and words (by words alone without an embedder); of equally relevant ones
        those come first that were said last. Where there are no more than k, all are returned.
        Of facts with one key only the newest is among them.

        Args:
            query: what is talked of; its first 2,000 characters count.
            tenant: whose memory.
            user: the person; None for what belongs to the tenant.
            k: how many facts at most; None for the `k` of the memory.
            since: leave out what was not said since then.

        Raises:
            ValueError: k is below 1, or the tenant or the user is an empty text.
            VectorError: the store failed, or has no search by words and there is no embedder.
        """
        wanted = self.k if k is None else k
        if wanted < 1:
            raise ValueError(f"expected k of 1 or more, got {k}")
        records = await self._of(tenant, user)
        found = await self._search(records, query, wanted, since=since)
        await self._note_recalled(records, found)
        return found

    async def _search(
        self, records: UserRecords, query: str, k: int, *, since: datetime | None = None
    ) -> Sequence[Fact]:
        condition: dict[str, Any] = dict(_CURRENT)
        if since is not None:
            condition["said_at"] = {"$gte": since.timestamp()}
        count = await records.count(condition)
        query = tidy(query, MAX_QUERY_CHARS)
        if not count:
            return []
        found = _by_rank_and_time(
            await self._ranked(records, query, min(count, _CANDIDATES * k), condition)
        )
        if count <= k:
            ids = {fact.id for fact in found}
            others = [_fact(each) async for each in records.read(condition) if each.id not in ids]
            found += sorted(others, key=lambda fact: fact.said_at, reverse=True)
        return self._true_now(found)[:k]

    async def _ranked(
        self, records: UserRecords, query: str, n: int, condition: Mapping[str, Any]
    ) -> Sequence[Hit]:
        if not query:
            return []
        index = EmbeddingIndex(
            records.store, self._embedder, namespace=records.namespace, hybrid="auto"
        )
        narrowed = records.narrowed(condition)
        if not self._by_words:
            hits = await index.search(query, n, filter=narrowed)
        elif is_searchable_by_keywords(records.store):
            hits = await index.search_by_keywords(query, n, filter=narrowed)
        else:
            hits = []
        records.check(hit.meta for hit in hits)
        return hits

    def _true_now(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Return those that have not ended, of each key the newest: two processes may race."""
        now = self._now()
        newest: dict[str, Fact] = {}
        for fact in facts:
            if fact.key and (fact.key not in newest or fact.said_at > newest[fact.key].said_at):
                newest[fact.key] = fact
        return [
            fact
            for fact in facts
            if (fact.until is None or fact.until > now)
            and (not fact.key or newest[fact.key] is fact)
        ]

    async def _note_recalled(self, records: UserRecords, facts: Sequence[Fact]) -> None:
        """Note the day, for `expire`; at most once a day for each fact."""
        now = self._now()
        due = [
            fact.id for fact in facts if fact.recalled_at is None or now - fact.recalled_at >= _DAY
        ]
        try:
            await records.note(due, {"recalled_at": now.timestamp()})
        except (VectorError, StoreError) as error:  # a full disk is no reason to know nothing
            _log.warning("recalled %d facts, but could not note that: %s", len(due), error)

    # -- people ----------------------------------------------------------------------------

    async def list(
        self, *, tenant: str | None = None, user: str | None = None, superseded: bool = False
    ) -> Sequence[Fact]:
        """Return all current facts of a user, newest first.

        Args:
            tenant: whose memory.
            user: the person; None for what belongs to the tenant.
            superseded: with those whose place others have taken, and those that have ended.
        """
        records = await self._of(tenant, user)
        condition = None if superseded else _CURRENT
        facts = [_fact(each) async for each in records.read(condition)]
        shown = facts if superseded else self._true_now(facts)
        return sorted(shown, key=lambda fact: (fact.said_at, fact.id), reverse=True)

    async def get(
        self, fact: str, *, tenant: str | None = None, user: str | None = None
    ) -> Fact | None:
        """Return the fact of this id, None if the user has none."""
        found = await (await self._of(tenant, user)).get([fact])
        return _fact(found[0]) if found else None

    async def correct(
        self,
        fact: str,
        text: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
    ) -> Fact:
        """Put other words in the place of a fact, which is kept as superseded; return the new one.

        Raises:
            FactNotFound: the user has no fact of this id.
            ValueError: there is no text.
        """
        origin = Origin(tenant=tenant, user=user, source="", said_at=self._now())
        async with self._writing(tenant, user) as records:
            there = await records.get([fact])
            if not there:
                raise FactNotFound(fact)
            old = _fact(there[0])
            candidate = Candidate(text=_checked(text), key=old.key, replaces=[fact])
            await self._apply(records, [candidate], origin, why=CORRECTED)
            own = fact_id(tidy(text), tenant=tenant, user=user)
            return _fact((await records.get([own]))[0])

    async def forget(
        self, ids: str | Sequence[str], *, tenant: str | None = None, user: str | None = None
    ) -> int:
        """Delete facts of a user for good, and return how many there were.

        Superseded ones in whose place they stand go with them. A store that can is purged, so that
        its files hold no byte of them, which may rewrite it; also where nothing is found, since a
        call before this one may have been cut off. So do `erase`, `erase_runs` and `expire`.
        """
        wanted = [ids] if isinstance(ids, str) else list(ids)
        async with self._writing(tenant, user) as records:
            all_wanted = await _with_superseded(records, wanted)
            gone = await records.delete(all_wanted)
        await purge(await self._opened())
        return gone

    # -- erasure and retention -------------------------------------------------------------

    async def erase(self, *, tenant: str | None = None, user: str | None = None) -> int:
        """Erase what is known of a user, or of all users of a tenant; return how many facts.

        What is being learned through this object is waited for, and erased as well.

        Args:
            tenant: whose memory; alone, all of it, with what belongs to the tenant and no user.
            user: the person.

        Raises:
            ValueError: neither is named.
        """
        store = await self._opened()
        if user is not None:
            users: list[str | None] = [user]
        elif tenant is not None:
            users = [*await users_of(store, tenant), *(u for t, u in self._turns if t == tenant)]
        else:
            raise ValueError("expected a tenant or a user whose memory is to be erased, got none")
        gone = 0
        for each in dict.fromkeys(users):
            async with self._writing(tenant, each) as records:
                gone += await records.delete()
        await purge(store)
        return gone

    async def erase_runs(
        self, runs: Iterable[str], *, tenant: str | None = None, user: str | None = None
    ) -> int:
        """Erase what is known from these runs alone; return how many facts.

        What was said in other runs, too, stays, without these among its sources.

        Args:
            runs: their ids.
            tenant: their tenant.
            user: their user.
        """
        wanted, gone = set(runs), 0
        async with self._writing(tenant, user) as records:
            for run in sorted(wanted):
                there = await _of_source(records, run)
                kept = [fact for fact in there if not wanted.issuperset(fact.sources)]
                gone += await records.delete(
                    [fact.id for fact in there if wanted.issuperset(fact.sources)]
                )
                await self._rewrite(records, kept, run)
        await purge(await self._opened())
        return gone

    async def _rewrite(self, records: UserRecords, facts: Sequence[Fact], run: str) -> None:
        """Store facts without a run among their sources."""
        by_id = {
            fact.id: replace(
                fact,
                sources=tuple(each for each in fact.sources if each != run),
                ended_in="" if fact.ended_in == run else fact.ended_in,
            )
            for fact in facts
        }
        there = await records.get(list(by_id))
        await records.upsert(
            Record(each.id, each.vector, each.text, by_id[each.id].to_meta()) for each in there
        )

    async def count_runs(
        self, runs: Iterable[str], *, tenant: str | None = None, user: str | None = None
    ) -> int:
        """Return how many facts `erase_runs` would erase."""
        wanted = set(runs)
        records = await self._of(tenant, user)
        found = {fact.id: fact for run in wanted for fact in await _of_source(records, run)}
        return sum(wanted.issuperset(fact.sources) for fact in found.values())

    async def records(self, tenant: str) -> TenantVectorStore:
        """Return all records of a tenant in the store, for `lib.privacy.erase_tenant`."""
        return tenant_records(await self._opened(), tenant)

    async def owners(self) -> Sequence[tuple[str | None, str | None]]:
        """Return the tenant and the user of each memory in the store that holds facts."""
        return await tenants_of(await self._opened())

    async def expire(
        self,
        *,
        older_than: timedelta | None = None,
        not_recalled_for: timedelta | None = None,
        tenant: str | None = None,
        user: str | None = None,
    ) -> int:
        """Erase facts that were not said, or not recalled, for so long; return how many.

        A fact that meets one of the conditions goes. One that was never recalled counts as
        recalled when it was said last.

        Args:
            older_than: since it was said last.
            not_recalled_for: since it was recalled last, to the day.
            tenant: only of this tenant.
            user: only of this user.

        Raises:
            ValueError: there is no condition, or one is not positive.
        """
        ages = [age for age in (older_than, not_recalled_for) if age is not None]
        if not ages or min(ages) <= timedelta(0):
            raise ValueError("expected a positive older_than or not_recalled_for")
        now, gone = self._now(), 0

        def is_due(fact: Fact) -> bool:
            recalled = max(fact.said_at, fact.recalled_at or fact.said_at)
            return (older_than is not None and now - fact.said_at > older_than) or (
                not_recalled_for is not None and now - recalled > not_recalled_for
            )

        for each in await self.owners():
            if (tenant is None or each[0] == tenant) and (user is None or each[1] == user):
                async with self._writing(*each) as records:
                    facts = [_fact(record) async for record in records.read()]
                    gone += await records.delete([fact.id for fact in facts if is_due(fact)])
        await purge(await self._opened())
        return gone

    def _now(self) -> datetime:
        return self._clock.now().astimezone(UTC)


class _WordsAlone:
    """The embedder of a memory without one: all vectors are the same."""

    dimension = 1

    async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
        return np.ones((len(texts), 1), np.float32)


async def _of_source(records: UserRecords, source: str) -> list[Fact]:
    """Return the facts that a run has added, said again or ended."""
    condition = {"$or": [{"sources": {"$contains": source}}, {"ended_in": source}]}
    return [_fact(each) async for each in records.read(condition)]


async def _with_superseded(records: UserRecords, wanted: Sequence[str]) -> list[str]:
    """Return these ids and those of the facts whose place they have taken, step by step."""
    found = dict.fromkeys(wanted)
    last = list(found)
    while last:
        condition = {"superseded_by": {"$in": last}}
        last = [each.id async for each in records.read(condition) if each.id not in found]
        found |= dict.fromkeys(last)
    return list(found)


def _fact(record: Record) -> Fact:
    return fact_of(record.id, record.text, record.meta)


def _checked(text: str) -> str:
    if not tidy(text):
        raise ValueError("expected a fact as text, got an empty one")
    return text


def _storable(
    candidates: Sequence[Candidate], texts: Sequence[str], origin: Origin
) -> tuple[list[Candidate], dict[str, int]]:
    """Return what may be stored, of each key the last, and how much may not be, by the reason."""
    kept: dict[str, Candidate] = {}
    left_out: dict[str, int] = {}
    for candidate in candidates:
        if reason := _objection(candidate, texts):
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        own = fact_id(tidy(candidate.text), tenant=origin.tenant, user=origin.user)
        name = tidy_key(candidate.key) or own
        kept.pop(name, None)
        kept[name] = candidate
    return list(kept.values()), left_out


def _objection(candidate: Candidate, texts: Sequence[str]) -> str:
    """Return why a candidate is not stored, "" if it is."""
    if not tidy(candidate.text):
        return "empty"
    if not grounded(candidate.quote, texts):
        return "not_said"
    if any(find(text, _SECRETS) for text in (candidate.text, candidate.key)):
        return "secret"
    return ""


def _by_rank_and_time(hits: Sequence[Hit]) -> list[Fact]:
    """Order facts by their rank in the search and, with less weight, by when they were said.

    Both ranks are fused as in reciprocal rank fusion; what the search found equal has one rank.
    """
    facts = [fact_of(hit.id, hit.text, hit.meta) for hit in hits]
    scores = [hit.score for hit in hits]
    by_time = sorted(facts, key=lambda fact: fact.said_at, reverse=True)
    age = {fact.id: place for place, fact in enumerate(by_time)}

    def fused(fact: Fact, score: float) -> float:
        rank = scores.index(score)
        return 1 / (_RANK_CONSTANT + rank) + _RECENCY / (_RANK_CONSTANT + age[fact.id])

    best = sorted(zip(facts, scores, strict=True), key=lambda pair: (-fused(*pair), pair[0].id))
    return [fact for fact, _ in best]


def _cosine(one: Any, other: Any) -> float:
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths else 0.0
