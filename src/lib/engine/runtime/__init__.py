"""What drives runs: leases, logs, effects, child runs, caches; asyncio and the store."""
