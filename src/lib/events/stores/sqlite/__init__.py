"""The event store in one SQLite file.

    layout.py   the tables and how an older file becomes a newer one
    rows.py     runs and events as rows
    errors.py   SQLite's errors as ours
    file.py     the open file, and whether its name still leads to it
    writer.py   the one connection that writes, a batch of operations per transaction
    reader.py   the connection that reads
    store.py    `SQLiteEventStore`, the asynchronous shell around them

Only `writer.py` and `reader.py` block, each in a thread of its own.
"""

from lib.events.stores.sqlite.store import Durability, SQLiteEventStore

__all__ = ["Durability", "SQLiteEventStore"]
