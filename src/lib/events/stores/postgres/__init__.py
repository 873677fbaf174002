"""The event store in PostgreSQL, with psycopg (extra `postgres`).

layout.py      the tables and how an older layout becomes a newer one
place.py       where a store is
rows.py        runs and events as rows, and names as PostgreSQL can keep them
errors.py      the driver's errors as ours
batch.py       what a batch of appends comes to; pure
statements.py  the one statement that writes a batch
writer.py      the appends of one partition, a batch per transaction
leases.py      who drives which run
changes.py     marks, erasing
reader.py      what is read
watch.py       what other processes have written
store.py       `PostgresEventStore`, which checks its input and joins the parts
"""

from importlib.util import find_spec

from lib.errors import MissingDriver

if not all(map(find_spec, ("psycopg", "psycopg_pool"))):
    raise MissingDriver("PostgresEventStore", driver="psycopg", extra="postgres")

from lib.events.stores.postgres.store import PostgresEventStore

__all__ = ["PostgresEventStore"]
