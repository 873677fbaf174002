import asyncio
from datetime import timedelta

from lib import Agent
from lib.errors import RunNotFound
from lib.events import DirectoryBlobStore, SQLiteEventStore
from lib.llm import ScriptedClient
from lib.privacy import erase_run, erase_tenant, expire
from lib.vector import Record, SQLiteVectorStore, TenantVectorStore


async def main() -> None:
    store, blobs = SQLiteEventStore("runs.db"), DirectoryBlobStore("blobs")
    vectors = SQLiteVectorStore("vectors.db", dimension=2)
    agent = Agent(ScriptedClient(["Hello."] * 3))
    async with agent.engine(store, blobs=blobs) as engine:
        runs = [
            await agent.start(engine, text, tenant=tenant)
            for text, tenant in (("I am Ada", "acme"), ("Ada again", "acme"), ("Bob", "other"))
        ]
        for run in runs:
            await run.result()
        acme = TenantVectorStore(vectors, "acme")
        await acme.upsert([Record("1", [1.0, 0.0], "Ada prefers tea")])

        try:  # to this tenant, that run does not exist
            await engine.run(runs[2].id, tenant="acme").result()
        except RunNotFound:
            print("no such run")

        print(await erase_run(store, runs[0].id, blobs=blobs))
        tombstone = await store.tombstone(runs[0].id)
        print("it had", tombstone and tombstone.events, "events; its id is never used again")
        print(await erase_tenant(store, "acme", blobs=blobs, vectors=[acme], dry_run=True))
        print(await erase_tenant(store, "acme", blobs=blobs, vectors=[acme]))
        print(await expire(store, older_than=timedelta(days=30), blobs=blobs))
        print(len(await store.runs()), "run is left")
    await vectors.close()


asyncio.run(main())
