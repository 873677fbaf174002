import asyncio

from lib.vector import F, Record, SQLiteVectorStore, TenantVectorStore, TenantViolation


async def main() -> None:
    store = SQLiteVectorStore("vectors.db", dimension=2)  # one store for all tenants
    await store.setup()
    acme, other = TenantVectorStore(store, "acme"), TenantVectorStore(store, "other")
    await acme.upsert([Record("1", [1.0, 0.0], "Acme's price list", {"year": 2026})])
    await other.upsert([Record("1", [1.0, 0.0], "Other's price list", {"year": 2026})])

    # The same id, the same vector, and a filter for every tenant: still one tenant's.
    wide = F("tenant").in_(["acme", "other"]) | (F("year") > 0)
    for match in await acme.query([1.0, 0.0], filter=wide):
        print(match.text, match.meta)

    for attempt in (
        lambda: acme.query([1.0, 0.0], namespace="other"),
        lambda: acme.upsert([Record("2", [0.0, 1.0], meta={"tenant": "other"})]),
    ):
        try:
            await attempt()
        except TenantViolation as violation:
            print("refused:", violation)

    notes = acme.sibling("/notes")  # a second namespace of the same tenant
    await notes.upsert([Record("1", [0.0, 1.0], "Call them back")])
    print(await acme.namespaces(), await notes.count())

    await acme.erase()  # all of it, siblings too, and of no other tenant
    print(await store.namespaces())
    await store.close()


asyncio.run(main())
