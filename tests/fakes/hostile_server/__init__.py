"""A web server on a real loopback socket that does everything a fetch must survive.

It answers with the scenarios of `SCENARIOS`, redirects where a test says, by http and by https,
and remembers every request. It keeps connections open, whatever stands on them.
"""

from fakes.hostile_server.scenarios import SCENARIOS, SENT_AHEAD, Scenario
from fakes.hostile_server.server import HostileServer, Received, blackhole

__all__ = ["SCENARIOS", "SENT_AHEAD", "HostileServer", "Received", "Scenario", "blackhole"]
