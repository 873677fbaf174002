"""The event store in PostgreSQL, with psycopg (extra `postgres`).

layout.py   the tables, and the migrations from one version to the next
schema.py   the schema of a store: its name in SQL and in messages, the driver's errors as ours
rows.py     runs and events as rows, and text as PostgreSQL can keep it
batch.py    the rows that a batch of appends writes, and the statement that writes them; pure
writer.py   appends, a batch per transaction
leases.py   leases: claim, renew, release
marks.py    marks, and the erasure of runs
reader.py   all that is read
watch.py    wakes listeners for the commits of other processes
store.py    `PostgresEventStore`, which checks its input and joins the parts
"""

from importlib.util import find_spec

from lib.errors import MissingDriver

if not all(map(find_spec, ("psycopg", "psycopg_pool"))):
    raise MissingDriver("PostgresEventStore", driver="psycopg", extra="postgres")

from lib.events.stores.postgres.store import PostgresEventStore

__all__ = ["PostgresEventStore"]
