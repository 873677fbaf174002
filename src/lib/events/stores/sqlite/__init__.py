"""The event store in one SQLite file.

layout.py       the tables and how an older file becomes a newer one
connection.py   connections, and SQLite's errors as ours
rows.py         runs and events as rows
writer.py       the one connection that writes, a batch of operations per transaction
reader.py       the connection that reads
commits.py      how operations wait for the next transaction
store.py        `SQLiteEventStore`, the asynchronous shell around them
"""

from lib.events.stores.sqlite.store import Durability, SQLiteEventStore

__all__ = ["Durability", "SQLiteEventStore"]
