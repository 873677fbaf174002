"""The event store on a Redis server.

layout.py      the keys, and the migrations from one version to the next
rows.py        runs and events as bytes
writes.py      the one script that writes, a batch of operations at a time
operations.py  the operations of that script: arguments, replies, and the queue in which they wait
reader.py      all that is read, with its scripts
rates.py       rates that all processes of the store share
server.py      the connections, and Redis's errors as ours; the only user of the driver
store.py       `RedisEventStore`, which joins them
"""

from lib.events.stores.redis.store import RedisEventStore

__all__ = ["RedisEventStore"]
