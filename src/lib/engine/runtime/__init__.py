"""The driver of runs: leases, logs, effects, child runs and caches."""
