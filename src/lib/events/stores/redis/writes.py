"""The one script that writes: a batch of operations, each carried out as a whole or refused.

1. A script has the server to itself. What it reads is so when it writes.
2. An operation is refused before it has changed anything; the others of its batch are carried out.
3. Redis refuses a write for want of memory or disk before the first write of a script, never in the
   middle of one (Source: https://redis.io/docs/latest/develop/interact/programmability/eval-intro/),
   so a batch that fails so has changed nothing, or has stopped between two operations.
4. What it does, not what it is, goes to the append-only file and to replicas, as one transaction.

Arguments: the layout version and the id of the store, then of each operation its name and its
arguments, as `operations.py` writes them. A list is preceded by its length. Lua's numbers are exact
below 2^53: runs and positions are numbers here, and everything else is text.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from lib.events.runs import FARTHEST_LEASE

_FARTHEST: Final = f"local FARTHEST = {FARTHEST_LEASE // timedelta(microseconds=1)}"

COMMIT: Final = (
    _FARTHEST
    + """
if redis.replicate_commands then redis.replicate_commands() end
local P = KEYS[1] .. ':'
local call = redis.call
local meta = call('HMGET', P .. 'meta', 'version', 'id')
if meta[1] ~= ARGV[1] then return {'layout', meta[1]} end
if (meta[2] or '') ~= ARGV[2] then return {'layout', false} end

local at = 2
local function take()
  at = at + 1
  return ARGV[at]
end
local function take_list()
  local items = {}
  for n = 1, tonumber(take()) do items[n] = take() end
  return items
end
local function text(number) return string.format('%.0f', number) end
local function push(key, items)
  local length = 0
  for first = 1, #items, 1000 do
    length = call('RPUSH', key, unpack(items, first, math.min(first + 999, #items)))
  end
  return length
end
local function number_of(id) return call('HGET', P .. 'names', id) end

-- Claims look for runs in `free`, by age, and in `held`, by the end of their leases.
local function place(number)
  local key = P .. 'run:' .. number
  local run = call('HMGET', key, 'algorithm', 'outcome', 'ready', 'owner', 'until')
  call('ZREM', P .. 'free:' .. run[1], number)
  call('ZREM', P .. 'held:' .. run[1], number)
  if run[2] or run[3] ~= '1' then return end
  if run[4] then
    call('ZADD', P .. 'held:' .. run[1], run[5], number)
  else
    call('ZADD', P .. 'free:' .. run[1], number, number)
  end
end

local ops = {}

function ops.append()
  local id, head, tombstone, partition = take(), take(), take(), take()
  local algorithm, fields, indexes = take(), take_list(), take_list()
  local entries, digests = take_list(), take_list()
  local number = number_of(id)
  local before = {'0', false, false}
  if number then
    before = call('HMGET', P .. 'run:' .. number, 'head', 'ready', 'outcome')
  elseif call('HEXISTS', P .. 'tombstones', tombstone) == 1 then
    return {'differs'}
  end
  if before[1] ~= head then return {'differs'} end
  if not number then
    number = text(call('HINCRBY', P .. 'meta', 'runs', 1))
    call('HSET', P .. 'names', id, number)
    call('SADD', P .. 'algorithms', algorithm)
    for _, index in ipairs(indexes) do call('ZADD', P .. index, number, number) end
  end
  local run = P .. 'run:' .. number
  call('HSET', run, unpack(fields))
  push(P .. 'log:' .. number, entries)
  local places = {}
  for n = 1, #entries do places[n] = number .. ':' .. text(tonumber(head) + n) end
  local length = push(P .. 'feed:' .. partition, places)
  local first = length - #entries
  call('RPUSH', P .. 'positions:' .. number, text(first), #entries)
  for _, digest in ipairs(digests) do
    call('ZADD', P .. 'blob:' .. digest, number, number)
    call('SADD', P .. 'blobs:' .. number, digest)
  end
  local after = call('HMGET', run, 'ready', 'outcome')
  if before[2] ~= after[1] or before[3] ~= after[2] then place(number) end
  if after[2] and not before[3] then
    call('ZREM', P .. 'open', number)
    call('ZADD', P .. 'closed', number, number)
  end
  return {'stored', text(first), text(length)}
end

-- The time in microseconds: the caller's, else the server's, which all processes share.
local function time(now)
  if now ~= '' then return tonumber(now) end
  local parts = call('TIME')
  return parts[1] * 1000000 + parts[2]
end

-- A lease that ends further ahead than any may was taken by a wrong clock, and holds nothing.
local function leased(number, now)
  local ends = call('HGET', P .. 'run:' .. number, 'until')
  local held = ends and tonumber(ends) > now and tonumber(ends) <= now + FARTHEST
  return held and ends
end

local function lease(number, owner, now, lasts)
  local run, ends = P .. 'run:' .. number, text(now + lasts)
  local takeover = call('HEXISTS', run, 'owner')
  call('HSET', run, 'owner', owner, 'until', ends)
  local epoch = call('HINCRBY', run, 'epoch', 1)
  place(number)
  return {call('HGET', run, 'id'), epoch, takeover, ends}
end

-- The numbers of the runs of these names as a set, and how many they are.
local function numbers_of(ids)
  local numbers, size = {}, 0
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    for _, number in ipairs(call('HMGET', P .. 'names', unpack(ids, first, last))) do
      if number and not numbers[number] then numbers[number], size = true, size + 1 end
    end
  end
  return numbers, size
end

-- The oldest runs of an algorithm that are ready and unleased, without those to skip.
local function ready(algorithm, now, limit, skipped, size)
  local free, held = P .. 'free:' .. algorithm, P .. 'held:' .. algorithm
  for _, over in ipairs({{'-inf', text(now)}, {'(' .. text(now + FARTHEST), '+inf'}}) do
    for _, number in ipairs(call('ZRANGEBYSCORE', held, over[1], over[2])) do
      call('ZREM', held, number)
      call('ZADD', free, number, number)
    end
  end
  while true do
    local found, sure = {}, true
    for _, number in ipairs(call('ZRANGE', free, 0, limit + size - 1)) do
      local passed = skipped[number] or #found == limit
      local ends = not passed and leased(number, now)
      if not passed then found[#found + 1] = number end
      if ends then -- moved here by a process with a fast clock
        call('ZREM', free, number)
        call('ZADD', held, ends, number)
        sure = false
      end
    end
    if sure then return found end
  end
end

function ops.claim()
  local owner, now, lasts, limit = take(), time(take()), take(), tonumber(take())
  local any, algorithms = take() == '1', take_list()
  local skipped, size = numbers_of(take_list())
  if any then algorithms = call('SMEMBERS', P .. 'algorithms') end
  local found, leases = {}, {}
  if limit > 0 then
    for _, algorithm in ipairs(algorithms) do
      local oldest = ready(algorithm, now, limit, skipped, size)
      for _, number in ipairs(oldest) do found[#found + 1] = number end
    end
  end
  table.sort(found, function(a, b) return tonumber(a) < tonumber(b) end)
  for n = 1, math.min(limit, #found) do leases[n] = lease(found[n], owner, now, lasts) end
  return leases
end

function ops.claim_one()
  local owner, now, lasts, id = take(), time(take()), take(), take()
  local any, algorithms = take() == '1', take_list()
  local number = number_of(id)
  if not number then return {} end
  local run = call('HMGET', P .. 'run:' .. number, 'algorithm', 'outcome')
  for _, algorithm in ipairs(algorithms) do any = any or algorithm == run[1] end
  if run[2] or not any or leased(number, now) then return {} end
  return {lease(number, owner, now, lasts)}
end

local function held_by(id, owner, epoch)
  local number = number_of(id)
  if not number then return false end
  local run = call('HMGET', P .. 'run:' .. number, 'owner', 'epoch')
  return run[1] == owner and run[2] == epoch and number
end

function ops.renew()
  local number = held_by(take(), take(), take())
  local ends = text(time(take()) + take())
  if not number then return false end
  call('HSET', P .. 'run:' .. number, 'until', ends)
  place(number)
  return ends
end

function ops.release()
  local number = held_by(take(), take(), take())
  local idle_at = take()
  if not number then return 0 end
  local run = P .. 'run:' .. number
  call('HDEL', run, 'owner', 'until')
  if call('HGET', run, 'head') == idle_at then call('HSET', run, 'ready', '0') end
  place(number)
  return 1
end

local function keep(name, value)
  call('HSET', P .. 'marks', name, value)
  call('ZADD', P .. 'marks:names', 0, name)
end

local function forget(name)
  call('HDEL', P .. 'marks', name)
  call('ZREM', P .. 'marks:names', name)
end

function ops.set_mark()
  keep(take(), take())
  return 1
end

function ops.compare_and_set_mark()
  local name, expected, value = take(), take_list(), take_list()
  if call('HGET', P .. 'marks', name) ~= (expected[1] or false) then return 0 end
  if value[1] then keep(name, value[1]) else forget(name) end
  return 1
end

function ops.erase()
  local id, tombstone, now, first, last = take(), take(), take(), take(), take()
  for _, name in ipairs(call('ZRANGEBYLEX', P .. 'marks:names', first, last)) do forget(name) end
  local number = number_of(id)
  if not number then return 0 end
  local key = P .. 'run:' .. number
  local run = call('HMGET', key, 'partition', 'algorithm', 'tenant', 'root', 'parent', 'head')
  local positions = call('LRANGE', P .. 'positions:' .. number, 0, -1)
  local indexes = {'all', 'roots', 'open', 'closed', 'tree:' .. run[4], 'free:' .. run[2],
                   'held:' .. run[2]}
  if run[3] then indexes[#indexes + 1] = 'tenant:' .. run[3] end
  if run[5] then indexes[#indexes + 1] = 'parent:' .. run[5] end
  -- First what frees memory: then a server that has none left lets the rest pass, too.
  for _, index in ipairs(indexes) do call('ZREM', P .. index, number) end
  for n = 1, #positions, 2 do
    for place = positions[n], positions[n] + positions[n + 1] - 1 do
      call('LSET', P .. 'feed:' .. run[1], text(place), '')
    end
  end
  for _, digest in ipairs(call('SMEMBERS', P .. 'blobs:' .. number)) do
    call('ZREM', P .. 'blob:' .. digest, number)
  end
  for _, name in ipairs({'run:', 'log:', 'positions:', 'blobs:'}) do
    call('DEL', P .. name .. number)
  end
  call('HDEL', P .. 'names', id)
  call('HSET', P .. 'tombstones', tombstone, run[6] .. ' ' .. now)
  return 1
end

local replies = {}
while at < #ARGV do replies[#replies + 1] = ops[take()]() end
return {'done', replies}
"""
)
