"""The event store in one SQLite file.

    layout.py   the tables, and the migrations from one version to the next
    rows.py     runs and events as rows
    file.py     the files of an open store, and SQLite's errors as ours
    erasure.py  how what is erased leaves the file
    writer.py   the one connection that writes, a batch of operations per transaction
    reader.py   the connection that reads
    store.py    `SQLiteEventStore`, the asynchronous shell around them

Only `writer.py` and `reader.py` block, each in a thread of its own.
"""

from lib.events.stores.sqlite.store import Durability, SQLiteEventStore

__all__ = ["Durability", "SQLiteEventStore"]
