"""Tenants that share a store try to read and write each other's records."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lib.errors import TenantViolation, UnsupportedFilter
from lib.testing.vector_store.cases import random_filter
from lib.testing.vector_store.kit import StoreKind
from lib.vector import EVERYTHING, F, Filter, Match, Record
from lib.vector.filter import And, Or, matches
from lib.vector.tenant import TenantVectorStore

TENANTS = ("a", "ab", "b", "a\u0301", "á", "A", "a%", "a\u202e", "'a' OR 1=1 --")
SUFFIXES = ("", ":b", "/b", "#", "/b:b", ":b/", "/" + "ab")
NAMES = ("1", "2", "3", "a")
Place: TypeAlias = tuple[str, str]  # of a tenant's records: whose they are, and in which sibling

randoms: st.SearchStrategy[Random] = st.randoms(use_true_random=False)
tenants: st.SearchStrategy[str] = st.sampled_from(TENANTS)
suffixes: st.SearchStrategy[str] = st.sampled_from(SUFFIXES)
names: st.SearchStrategy[list[str]] = st.lists(st.sampled_from(NAMES), max_size=4)
vectors: st.SearchStrategy[list[float]] = st.lists(
    st.integers(-3, 3).map(float), min_size=3, max_size=3
)
colours: st.SearchStrategy[str] = st.sampled_from(["red", "blue"])


def check_tenants(kind: StoreKind, *, max_examples: int = 20) -> None:
    """Fail if a tenant ever reads, counts, replaces or deletes what another one has.

    Args:
        kind: the store that they share.
        max_examples: how many sequences of operations to try; `kind.examples` may make it fewer.
    """

    class Machine(_Tenants):
        """The machine of this kind of store."""

        store_kind = kind

    examples = kind.at_most(max_examples)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class _Tenants(RuleBasedStateMachine):
    """Holds what each view shows against a dict for each tenant and sibling."""

    store_kind: StoreKind

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._folder = TemporaryDirectory()
        self._store: Any = self.store_kind.open(Path(self._folder.name), 3, "dot")
        self._run(self._store.setup())
        self._held: dict[Place, dict[str, Record]] = {}
        self._planted: dict[str, dict[str, Record]] = {}  # by namespace: what no view wrote

    def teardown(self) -> None:
        """Close everything."""
        self._run(self._store.close())
        self._runner.close()
        self._folder.cleanup()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(call)

    def _view(self, place: Place) -> Any:
        tenant, suffix = place
        view = TenantVectorStore(self._store, tenant)
        return view.sibling(suffix) if suffix else view

    def _refused(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        with pytest.raises(TenantViolation):
            self._run(call())

    def _filtered(self, call: Callable[[Filter], Coroutine[Any, Any, Any]], filter: Filter) -> Any:
        """Return the answer, or None where the store cannot say the filter."""
        try:
            return self._run(call(filter))
        except UnsupportedFilter:
            return None

    @rule(tenant=tenants, suffix=suffixes, wanted=names, vector=vectors, colour=colours)
    def write(
        self, tenant: str, suffix: str, wanted: list[str], vector: list[float], colour: str
    ) -> None:
        """Write records with the same ids as everybody."""
        meta = {"colour": colour} if colour == "red" else {"colour": colour, "tenant": tenant}
        text = f"secret of {tenant}"
        batch = [Record(name, vector, text, meta) for name in wanted]
        view = self._view((tenant, suffix))
        if self._planted.get(tenant + suffix, {}).keys() & set(wanted):
            self._refused(lambda: view.upsert(batch))
            return
        self._run(view.upsert(batch))

        signed = {"colour": colour, "tenant": tenant}
        held = self._held.setdefault((tenant, suffix), {})
        held.update({name: Record(name, vector, text, signed) for name in wanted})

    @precondition(lambda self: self.store_kind.can(self._store, "insert"))
    @rule(tenant=tenants, suffix=suffixes, wanted=names, vector=vectors, colour=colours)
    def insert(
        self, tenant: str, suffix: str, wanted: list[str], vector: list[float], colour: str
    ) -> None:
        """Insert records with the same ids as everybody, where they are not there."""
        view, text, unsigned = self._view((tenant, suffix)), f"secret of {tenant}", set(wanted)
        batch = [Record(name, vector, text, {"colour": colour}) for name in sorted(unsigned)]
        if self._planted.get(tenant + suffix, {}).keys() & unsigned:
            self._refused(lambda: view.insert(batch))
            return
        held = self._held.setdefault((tenant, suffix), {})
        new = [record for record in batch if record.id not in held]
        assert self._run(view.insert(batch)) == len(new)

        signed = {"colour": colour, "tenant": tenant}
        held.update({record.id: replace(record, meta=signed) for record in new})

    @rule(tenant=tenants, suffix=suffixes, other=tenants, wanted=names)
    def claim(self, tenant: str, suffix: str, other: str, wanted: list[str]) -> None:
        """Write a record with another tenant's id, among good ones."""
        if other != tenant:
            good = [Record(name, [1, 2, 3]) for name in wanted]
            forged = Record("1", [1, 2, 3], "", {"tenant": other})
            view = self._view((tenant, suffix))
            self._refused(lambda: view.upsert([*good, forged]))
            if self.store_kind.can(self._store, "insert"):
                self._refused(lambda: view.insert([*good, forged]))

    @rule(tenant=tenants, suffix=suffixes, other=tenants, beside=suffixes)
    def reach(self, tenant: str, suffix: str, other: str, beside: str) -> None:
        """Search the namespace of another tenant, or of a sibling."""
        view = self._view((tenant, suffix))
        named = other + beside
        if named == view.namespace:
            return
        for call in (
            lambda: view.upsert([Record("1", [1, 2, 3])], namespace=named),
            lambda: view.query([1, 2, 3], namespace=named),
            lambda: view.get(["1"], namespace=named),
            lambda: view.delete(["1"], namespace=named),
            lambda: view.delete(filter=EVERYTHING, namespace=named),
            lambda: view.count(namespace=named),
            lambda: view.insert([Record("1", [1, 2, 3])], namespace=named),
            lambda: view.update_meta({"colour": "red"}, ids=["1"], namespace=named),
            lambda: view.query_many([[1, 2, 3]], namespace=named),
            lambda: view.query_hybrid([1, 2, 3], "secret", namespace=named),
            lambda: view.query_keywords("secret", namespace=named),
            lambda: view.scan(namespace=named),
            lambda: listed(view.list_records(namespace=named)),
            lambda: view.facet("colour", namespace=named),
        ):
            self._refused(call)

    @rule(tenant=tenants, suffix=suffixes, other=tenants, vector=vectors, random=randoms)
    def search(
        self, tenant: str, suffix: str, other: str, vector: list[float], random: Random
    ) -> None:
        """Search with a filter that asks for what others have."""
        place, filter = (tenant, suffix), hostile_filter(random, other)
        view = self._view(place)
        self._finds(place, filter, lambda kept: view.query(vector, 50, filter=kept))
        if self.store_kind.can(self._store, "batch"):
            many = self._filtered(
                lambda kept: view.query_many([vector] * 2, 50, filter=kept), filter
            )
            for found in many or ():
                assert {match.id for match in found} == self._passing(place, filter)
        counted = self._filtered(lambda kept: view.count(filter=kept), filter)
        assert counted in {None, len(self._passing(place, filter))}

    @precondition(lambda self: self.store_kind.can(self._store, "scan"))
    @rule(tenant=tenants, suffix=suffixes, other=tenants, random=randoms)
    def list_passing(self, tenant: str, suffix: str, other: str, random: Random) -> None:
        """Read a page and all pages, with a filter that asks for what others have."""
        place, filter = (tenant, suffix), hostile_filter(random, other)
        view, held, passing = self._view(place), self._held.get(place, {}), self._passing
        expected = [held[name] for name in sorted(passing(place, filter))]
        page = self._filtered(lambda kept: view.scan(filter=kept, limit=2), filter)
        assert page in (None, expected[:2])
        every = self._filtered(
            lambda kept: listed(view.list_records(filter=kept, batch_size=2)), filter
        )
        assert every in (None, expected)

    @precondition(lambda self: self.store_kind.can(self._store, "facet"))
    @rule(tenant=tenants, suffix=suffixes, other=tenants, random=randoms)
    def count_values(self, tenant: str, suffix: str, other: str, random: Random) -> None:
        """Count values of all records, and of those that pass such a filter."""
        place, hostile = (tenant, suffix), hostile_filter(random, other)
        view, held = self._view(place), self._held.get(place, {})
        for field in ("tenant", "colour"):
            every = Counter(record.meta[field] for record in held.values())
            assert dict(self._run(view.facet(field)).values) == every
            passing = Counter(held[name].meta[field] for name in self._passing(place, hostile))
            facet = self._filtered(
                lambda kept, field=field: view.facet(field, filter=kept), hostile
            )
            assert facet is None or dict(facet.values) == passing

    @precondition(lambda self: self.store_kind.can(self._store, "hybrid"))
    @rule(tenant=tenants, suffix=suffixes, other=tenants, vector=vectors, random=randoms)
    def search_words(
        self, tenant: str, suffix: str, other: str, vector: list[float], random: Random
    ) -> None:
        """Search for words that others have written."""
        place, filter = (tenant, suffix), hostile_filter(random, other)
        view, text = self._view(place), f"secret {other}"
        self._finds(place, filter, lambda kept: view.query_hybrid(vector, text, 50, filter=kept))
        if self.store_kind.can(self._store, "keywords"):
            self._finds(place, filter, lambda kept: view.query_keywords(text, 50, filter=kept))

    @rule(tenant=tenants, suffix=suffixes, other=tenants, wanted=names, random=randoms)
    def delete(
        self, tenant: str, suffix: str, other: str, wanted: list[str], random: Random
    ) -> None:
        """Delete by id, by a filter that asks for what others have, or by both."""
        view, filter = self._view((tenant, suffix)), hostile_filter(random, other)
        held = self._held.get((tenant, suffix), {})
        passing = self._passing((tenant, suffix), filter)
        if random.random() < 0.3:
            self._run(view.delete(wanted))
            gone = set(wanted)
        elif random.random() < 0.5:
            done = self._filtered(lambda kept: self._completed(view.delete(filter=kept)), filter)
            gone = passing if done else set[str]()
        else:
            done = self._filtered(
                lambda kept: self._completed(view.delete(wanted, filter=kept)), filter
            )
            gone = passing & set(wanted) if done else set[str]()
        for name in gone:
            held.pop(name, None)

    @precondition(lambda self: self.store_kind.can(self._store, "update"))
    @rule(tenant=tenants, suffix=suffixes, other=tenants, wanted=names, random=randoms)
    def repaint(
        self, tenant: str, suffix: str, other: str, wanted: list[str], random: Random
    ) -> None:
        """Change metadata by id, or by a filter that asks for what others have."""
        place, filter = (tenant, suffix), hostile_filter(random, other)
        view, held = self._view(place), self._held.get((tenant, suffix), {})
        if other != tenant:
            self._refused(lambda: view.update_meta({"tenant": other}, ids=wanted))
        if random.random() < 0.5:
            changed = held.keys() & set(wanted)
            assert self._run(view.update_meta({"colour": "green"}, ids=wanted)) == len(changed)
        else:
            done = self._filtered(
                lambda kept: view.update_meta({"colour": "green"}, filter=kept), filter
            )
            changed = set[str]() if done is None else self._passing(place, filter)
        for name in changed:
            held[name] = replace(held[name], meta={**held[name].meta, "colour": "green"})

    @rule(tenant=tenants, suffix=suffixes)
    def erase(self, tenant: str, suffix: str) -> None:
        """Erase all that a tenant has, from any of its namespaces."""
        self._run(self._view((tenant, suffix)).erase())
        for place in [place for place in self._held if place[0] == tenant]:
            del self._held[place]

    @rule(tenant=tenants, suffix=suffixes, other=tenants, wanted=names, sign=st.booleans())
    def plant(self, tenant: str, suffix: str, other: str, wanted: list[str], sign: bool) -> None:
        """Write another tenant's records, or records without a tenant, past the view."""
        if other == tenant:
            return
        meta = {"colour": "red", **({"tenant": other} if sign else {})}
        batch = [Record(name, [9.0, 9.0, 9.0], f"secret of {other}", meta) for name in wanted]
        self._run(self._store.upsert(batch, namespace=tenant + suffix))

        for record in batch:
            self._held.get((tenant, suffix), {}).pop(record.id, None)
            self._planted.setdefault(tenant + suffix, {})[record.id] = record

    @rule(tenant=tenants, suffix=suffixes)
    def look(self, tenant: str, suffix: str) -> None:
        """Read all that there is to see."""
        view, held = self._view((tenant, suffix)), self._held.get((tenant, suffix), {})
        assert self._run(view.count()) == len(held)
        found = self._run(view.get([*NAMES]))
        assert {record.id: record for record in found} == held
        if self.store_kind.can(self._store, "scan"):
            assert self._run(view.scan(limit=2)) == sorted(found, key=lambda one: one.id)[:2]
        own = {owner + beside for owner, beside in self._held if owner == tenant}
        listed = sorted(name for name in own if self._held[tenant, name[len(tenant) :]])
        assert self._run(view.namespaces()) == listed
        assert self._run(view.namespaces(tenant + ":")) == [
            name for name in listed if name.startswith(tenant + ":")
        ]

    @invariant()
    def lose_nothing(self) -> None:
        """Hold what the store has, seen past the views, against what everybody put there."""
        there = {name: dict(planted) for name, planted in self._planted.items() if planted}
        for (tenant, suffix), held in self._held.items():
            there.setdefault(tenant + suffix, {}).update(held)
        there = {name: records for name, records in there.items() if records}
        assert self._run(self._store.namespaces()) == sorted(there)
        for name, records in there.items():
            found = self._run(self._store.get([*NAMES], namespace=name))
            assert {record.id: record for record in found} == records

    def _passing(self, place: Place, filter: Filter) -> set[str]:
        held = self._held.get(place, {})
        return {name for name in held if matches(filter, held[name].meta)}

    def _finds(
        self, place: Place, filter: Filter, call: Callable[[Filter], Coroutine[Any, Any, Any]]
    ) -> None:
        """See that exactly what a tenant has and asks for is found, or the filter refused."""
        found: list[Match] | None = self._filtered(call, filter)
        if found is not None:
            assert {match.id for match in found} == self._passing(place, filter)
            assert all(match.meta["tenant"] == place[0] for match in found)
            assert all(match.text == f"secret of {place[0]}" for match in found)

    async def _completed(self, call: Coroutine[Any, Any, None]) -> bool:
        await call
        return True


async def listed(records: AsyncIterable[Record]) -> list[Record]:
    """Return all records of an iterator."""
    return [record async for record in records]


def hostile_filter(random: Random, other: str) -> Filter:
    """Return a filter that asks for the records of another tenant, in one of many ways."""
    forged = F("tenant") == other
    plain = Filter.parse(json.loads(json.dumps({"$or": [{"tenant": other}, {"colour": "red"}]})))
    assert plain is not None
    return random.choice(
        [
            EVERYTHING,
            forged,
            plain,
            forged | EVERYTHING,
            ~forged,
            ~(F("tenant") == "a"),
            ~~Or((forged, F("colour") == "blue")),
            Or((And(()), forged)),
            F("tenant") != "no-tenant",
            F("tenant").in_([*TENANTS]),
            F("tenant").not_in([]),
            F("tenant").exists(),
            F("tenant").exists(present=False),
            F("tenant") >= "",
            forged | random_filter(random, depth=1),
            F("colour") == "red",
        ]
    )
