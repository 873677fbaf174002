"""The scripts that read: each one round trip, and each sees one state of the store.

A server that has lost its data would answer all of them with nothing, so each looks first whether
the store is there, by its id, which is the first argument.
"""

from __future__ import annotations

from typing import Final

from lib.events.stores.redis.server import GONE

_PRESENT: Final = f"""
local meta = redis.call('HMGET', KEYS[1] .. ':meta', 'version', 'id')
if not meta[1] or (meta[2] or '') ~= table.remove(ARGV, 1) then
  return redis.error_reply('{GONE}')
end
"""

FIND: Final = (
    _PRESENT
    + """
local P = KEYS[1] .. ':'
local number = redis.call('HGET', P .. 'names', ARGV[1])
if number then return {number, cjson.encode(redis.call('HGETALL', P .. 'run:' .. number))} end
return {false, redis.call('HGET', P .. 'tombstones', ARGV[2])}
"""
)
"""The number and the fields of a run, or nothing and its tombstone."""

LOG: Final = (
    _PRESENT
    + """
local P = KEYS[1] .. ':'
local number = redis.call('HGET', P .. 'names', ARGV[1])
if not number then return {} end
return redis.call('LRANGE', P .. 'log:' .. number, ARGV[2], ARGV[3])
"""
)
"""Entries of a run's log, from an index to another."""

RUNS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local smallest, fewest
for n = 3, #ARGV do
  local size = call('ZCARD', P .. ARGV[n])
  if not fewest or size < fewest then smallest, fewest = P .. ARGV[n], size end
end
local found = call('ZRANGEBYSCORE', smallest, '(' .. ARGV[1], '+inf', 'LIMIT', '0', ARGV[2])
local page = {}
for n, number in ipairs(found) do
  page[n] = cjson.encode(call('HGETALL', P .. 'run:' .. number))
end
return {found[#found] or false, page}
"""
)
"""The number of the last and the fields of runs after a number, from the smallest of some indexes.

Fields are JSON: the driver takes far longer for many small answers than for one."""

FEED: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local feed, after = P .. 'feed:' .. ARGV[1], tonumber(ARGV[2])
local limit, cap = tonumber(ARGV[3]), tonumber(ARGV[4])
local function text(number) return string.format('%.0f', number) end
local length = call('LLEN', feed)
if after > length then after = length end
local pages, events, bytes = {}, 0, 0
while events < limit and after < length and bytes < cap do
  local wanted = math.min(limit - events, 1000)
  local places = call('LRANGE', feed, text(after), text(after + wanted - 1))
  local n = 1
  while n <= #places and bytes < cap do
    local count = 1
    if places[n] ~= '' then
      local number, seq = string.match(places[n], '^(%d+):(%d+)$')
      while count < 16 and places[n + count] == number .. ':' .. text(seq + count) do
        count = count + 1
      end
      local last = text(seq + count - 2)
      local entries = call('LRANGE', P .. 'log:' .. number, text(seq - 1), last)
      for _, entry in ipairs(entries) do bytes = bytes + #entry end
      pages[#pages + 1] = {call('HGET', P .. 'run:' .. number, 'id'), seq, entries}
      events = events + count
    end
    n = n + count
    after = after + count
  end
end
return {text(after), after < length and 1 or 0, pages}
"""
)
"""Events of a partition after a position, the position after them, and whether there are more.

It ends at a number of events, or of bytes, so that it does not hold the server for long."""

MARKS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local found = {}
for _, name in ipairs(call('ZRANGEBYLEX', P .. 'marks:names', ARGV[1], ARGV[2])) do
  found[#found + 1] = name
  found[#found + 1] = call('HGET', P .. 'marks', name)
end
return found
"""
)
"""Names and values of marks, ordered by name."""

USERS: Final = (
    _PRESENT
    + """
local P, call = KEYS[1] .. ':', redis.call
local users = {}
for n, number in ipairs(call('ZRANGE', P .. 'blob:' .. ARGV[1], 0, ARGV[2])) do
  users[n] = call('HGET', P .. 'run:' .. number, 'id')
end
return users
"""
)
"""The ids of runs that refer to a blob, oldest first, up to an index."""
