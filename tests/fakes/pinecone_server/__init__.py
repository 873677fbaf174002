"""A stand-in for Pinecone's service, which has no server that one could run.

It keeps records, evaluates filters, and is as unpleasant as the real one: results come unsorted,
searches lag behind writes, limits hold to the byte, and a test can make it refuse or be away.
"""

from fakes.pinecone_server.clock import HurryingClock
from fakes.pinecone_server.server import API_KEY, PineconeServer

__all__ = ["API_KEY", "HurryingClock", "PineconeServer"]
