"""Rates that all processes of a store share: one script for each request."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from lib.events.rates import Rate, RateState, rate_state
from lib.events.stores.redis.server import Server

TAKE: Final = """
if redis.replicate_commands then redis.replicate_commands() end
local P, call = KEYS[1] .. ':rate:', redis.call
local now = tonumber(ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local reply, fits = {1}, true
for i = 2, #ARGV, 3 do
  local ahead = math.max(0, tonumber(call('GET', P .. ARGV[i]) or now) - now)
  reply[#reply + 1] = ahead
  fits = fits and ahead + tonumber(ARGV[i + 1]) <= tonumber(ARGV[i + 2])
end
if not fits then
  reply[1] = 0
  return reply
end
for i = 2, #ARGV, 3 do
  local ahead = reply[(i + 1) / 3 + 1] + tonumber(ARGV[i + 1])
  call('SET', P .. ARGV[i], string.format('%.0f', now + ahead), 'PX', math.ceil(ahead / 1000))
end
return reply
"""
"""Replies 1 if the request is counted, 0 if not, and how far each name was ahead before."""


async def take_rates(
    server: Server, key: str, now_us: int | None, wanted: Sequence[tuple[str, Rate]]
) -> list[RateState]:
    """Count a request; see `SharesRates`.

    Args:
        server: of the store.
        key: of the store.
        now_us: the time in microseconds; None for the server's.
        wanted: names with their rates.
    """
    args: list[str | int] = [-1 if now_us is None else now_us]
    for name, rate in wanted:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        args += (digest, rate.interval_us, rate.window_us)
    granted, *ahead = await server.run(TAKE, key, *args)
    return [
        rate_state(before, rate, granted=bool(granted))
        for (_, rate), before in zip(wanted, ahead, strict=True)
    ]
