"""The event store on a Redis server.

layout.py      the keys, and how an older place becomes a newer one
writes.py      the one script that writes, a batch of operations at a time
reads.py       the scripts that read
rows.py        runs and events as bytes
operations.py  what can be written, as arguments of that script and out of its replies
lanes.py       how operations wait for the next script of their lane, and share it
server.py      the connections, and Redis's errors as ours; the only user of the driver
watch.py       looks for what other processes have written
store.py       `RedisEventStore`, which joins them
"""

from lib.events.stores.redis.store import RedisEventStore

__all__ = ["RedisEventStore"]
