"""A web server on a real loopback socket that does everything a fetch must survive.

It answers with the scenarios of `SCENARIOS`, redirects as told, by http and by https, and remembers
who asked for what. It keeps connections open, whatever stands on them.
"""

from fakes.hostile_server.scenarios import SCENARIOS, SENT_AHEAD, Scenario
from fakes.hostile_server.server import Asked, HostileServer, blackhole

__all__ = ["SCENARIOS", "SENT_AHEAD", "Asked", "HostileServer", "Scenario", "blackhole"]
