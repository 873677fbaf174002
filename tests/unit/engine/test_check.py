"""The deep check finds a log that does not follow from itself."""

from collections.abc import Sequence
from dataclasses import replace

from lib.algorithms import React
from lib.engine.api.check import request_check
from lib.events import Event, MemoryEventStore, RunInfo
from lib.events import kinds as k
from lib.events.runs import fold
from lib.events.verify import Fault
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.testing.event_store.kit import AT
from lib.tools import tool


@tool
def act() -> str:
    return "acted"


async def a_run() -> tuple[RunInfo, list[Event]]:
    async def main() -> tuple[RunInfo, list[Event]]:
        store = MemoryEventStore()
        reply = Reply((ToolCall("c1", "act"),), stop="tool_calls")
        client = ScriptedClient([reply, "done"])
        async with make_engine(client, act, store=store, agent=React(system="s")) as engine:
            started = await engine.start("go")
            await started.result()
            return await started.info(), await store.read(started.id)

    return await main()


def faults(info: RunInfo, log: Sequence[Event]) -> list[tuple[int, str]]:
    found: list[Fault] = list(request_check([React()])(info, log))
    return [(fault.seq, fault.rule) for fault in found]


async def test_a_log_of_the_engine_has_no_faults() -> None:
    info, log = await a_run()

    assert faults(info, log) == []


async def test_a_changed_conversation_no_longer_has_the_recorded_digests() -> None:
    info, log = await a_run()
    message = {"role": "user", "content": "go away"}
    log[0] = replace(log[0], data={**log[0].data, "input": [message]})

    assert faults(info, log) == [(2, "request-digest"), (6, "request-digest")]


async def test_a_request_that_the_algorithm_did_not_make_is_a_fault() -> None:
    info, log = await a_run()
    log[3] = replace(log[3], data={**log[3].data, "key": "tool/1/other"})

    assert (4, "request-decided") in faults(info, log)


async def test_runs_of_unknown_algorithms_and_empty_logs_pass() -> None:
    info, log = await a_run()

    assert faults(replace(info, algorithm="swarm"), log) == []
    assert faults(info, []) == []
    assert [event.kind for event in log][-1] == k.RUN_COMPLETED


def test_a_damaged_log_is_a_fault_of_the_log_and_not_of_the_check() -> None:
    log = [Event("r", 1, k.RUN_STARTED, {"algorithm": "react"}, AT)]

    assert faults(fold(log), log) == [(1, "fold")]
