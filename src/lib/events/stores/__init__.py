"""One event store per file; each knows its driver and none knows another."""
