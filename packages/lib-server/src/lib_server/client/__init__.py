"""The client of a server: `Client` for asyncio, `SyncClient` for all other programs."""
