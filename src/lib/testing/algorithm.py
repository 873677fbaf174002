"""The contract of algorithms, as a suite: subclass it and open your algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lib.engine import Algorithm, Engine, Handler, LLMHandler, Result, ToolHandler
from lib.engine.api.check import request_check
from lib.engine.core.decide import next_step
from lib.engine.core.state import begin, evolve, fold
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message
from lib.llm.scripted import Answerer
from lib.resilience import RetryPolicy
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.providers import check_conversation
from lib.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An algorithm and what it meets: answers and tools must depend on nothing but their input.

    Attributes:
        input: what the user says.
        answer: stands in for the model.
        handlers: more than those of models and tools.
        max_events: the run ends within so many.
    """

    algorithm: Algorithm[Any]
    input: str
    answer: Answerer
    tools: Sequence[Tool] = ()
    handlers: Sequence[Handler] = ()
    max_events: int = 200


class _Recording(MemoryEventStore):
    """Keeps the batches in which a log was appended: a crash falls between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[NewEvent]] = []

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        stored = await super().append(run_id, events, expected=expected)
        self.batches.append(list(events))
        return stored


class AlgorithmContract(ABC):
    """The tests; `world` is the only thing to fill in."""

    @abstractmethod
    def world(self) -> World:
        """Return a new world."""

    def _engine(self, store: MemoryEventStore) -> Engine:
        world = self.world()
        client = LLMHandler(FunctionClient(world.answer), retries=RetryPolicy(attempts=1))
        handlers = [client, ToolHandler(world.tools), *world.handlers]
        return Engine(store, handlers, algorithms=[world.algorithm], clock=ManualClock())

    def _play(self) -> tuple[Result, list[Event], list[list[NewEvent]]]:
        store, text = _Recording(), self.world().input
        engine = self._engine(store)

        async def main() -> tuple[Result, list[Event]]:
            async with engine:
                started = await engine.start(text)
                return await started.result(), await store.read(started.id)

        result, log = run(main())
        return result, log, store.batches

    def test_it_ends_within_its_cap(self) -> None:
        _, log, _ = self._play()

        assert log[-1].kind == k.RUN_COMPLETED
        assert len(log) <= self.world().max_events

    def test_the_same_log_gives_the_same_state_and_the_same_decisions(self) -> None:
        _, log, _ = self._play()
        one, other = self.world().algorithm, self.world().algorithm

        for size in range(1, len(log)):
            mine, theirs = fold(one, log[:size]), fold(other, log[:size])
            assert mine == theirs
            assert next_step(one, mine) == next_step(other, theirs)

    def test_an_evolved_state_leaves_the_one_before_as_it_was(self) -> None:
        _, log, _ = self._play()
        algorithm = self.world().algorithm

        state = begin(algorithm, log[0])
        for size, event in enumerate(log[1:], 2):
            after = evolve(algorithm, state, event)
            assert state == fold(algorithm, log[: size - 1])
            state = after

    def test_what_it_does_not_know_changes_nothing(self) -> None:
        _, log, _ = self._play()
        algorithm = self.world().algorithm
        strange = Event(log[0].run_id, 0, "acme.note", {"key": "llm/1", "reply": {}}, log[0].at)

        for size in range(1, len(log) + 1):
            state = fold(algorithm, log[:size])
            assert evolve(algorithm, state, strange).loop == state.loop

    def test_what_it_leaves_to_the_next_turn_is_accepted_by_a_strict_provider(self) -> None:
        _, log, _ = self._play()
        algorithm = self.world().algorithm
        conversation = getattr(algorithm, "conversation", None)

        for size in range(1, len(log) + 1):
            state = fold(algorithm, log[:size])
            left: Sequence[Message] = conversation(state.loop) if conversation else ()
            check_conversation([*left, Message.user("and now?")])

    def test_every_request_of_its_log_is_decided_again_from_the_log_before_it(self) -> None:
        store, text = _Recording(), self.world().input
        engine = self._engine(store)

        async def main() -> list[object]:
            async with engine:
                started = await engine.start(text)
                await started.result()
                check = request_check([self.world().algorithm])
                return list(check(await started.info(), await store.read(started.id)))

        assert run(main()) == []

    def test_a_crash_after_any_append_leads_to_the_same_end(self) -> None:
        undisturbed, log, batches = self._play()

        for size in range(1, len(batches)):
            resumed = self._resume(log[0].run_id, batches[:size])
            assert (resumed.outcome, resumed.output) == (undisturbed.outcome, undisturbed.output)

    def _resume(self, run_id: str, batches: Sequence[Sequence[NewEvent]]) -> Result:
        store = MemoryEventStore()
        engine = self._engine(store)

        async def main() -> Result:
            async with engine:
                head = 0
                for batch in batches:
                    await store.append(run_id, batch, expected=head)
                    head += len(batch)
                return await engine.run(run_id).result()

        return run(main())
