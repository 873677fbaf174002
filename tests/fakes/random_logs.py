"""Random logs that keep every rule of a log, for property tests of whatever reads them.

They look like those of agents, and have more in them than any agent of today writes: unknown
kinds, signals that come twice or too late, clocks that go back, takeovers at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st

from lib.events import Event
from lib.events import kinds as k
from lib.observe import span_id_of

_START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_MAX_CALLS: Final = 3
_WORDS: Final = st.sampled_from(["alpha", "beta", "gamma"])
_ALGORITHMS: Final = st.sampled_from(["alpha", "beta", "session", "swarm", "debate", "reflexion"])
_MEMORIES: Final = st.sampled_from(["search_memory", "upsert_memory", "delete_memory"])
_STEPS: Final = st.integers(-1_000, 60_000).map(lambda ms: timedelta(milliseconds=ms))
_COUNTED: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
_TOKENS: Final = {f"{name}_tokens": st.integers(0, 5_000) for name in _COUNTED}
_COST: Final = st.integers(0, 64).map(lambda cents: cents / 64)
_USAGES: Final = st.fixed_dictionaries({}, optional={**_TOKENS, "cost": _COST})


@st.composite
def logs(
    draw: st.DrawFn,
    *,
    run_id: str = "run",
    parent: Mapping[str, str] | None = None,
    content: st.SearchStrategy[str] | None = None,
    words: st.SearchStrategy[str] | None = None,
    max_steps: int = 25,
) -> list[Event]:
    """Draw the log of one run, at any point of its life.

    Args:
        draw: given by hypothesis.
        run_id: the run.
        parent: for a child run: `root`, and the `run_id` and `key` of what started it.
        content: the texts of people, models and tools.
        words: the names of tools, calls, models, errors and reasons.
        max_steps: about how many events there are at most.
    """
    texts = st.text(max_size=12) if content is None else content
    log = _Log(draw, run_id, texts, _WORDS if words is None else words)
    log.start(dict(parent) if parent else None)
    for _ in range(draw(st.integers(0, max_steps) | st.just(max_steps))):
        steps = log.possible()
        steps[draw(st.integers(0, len(steps) - 1))]()
    return log.events


@st.composite
def traces(
    draw: st.DrawFn,
    *,
    content: st.SearchStrategy[str] | None = None,
    words: st.SearchStrategy[str] | None = None,
    max_children: int = 3,
    max_steps: int = 15,
) -> list[list[Event]]:
    """Draw the logs of a root run and of runs below it, every parent before its children.

    The arguments are those of `logs`, for each log.
    """

    def log(run_id: str, parent: Mapping[str, str] | None = None) -> list[Event]:
        options = {"content": content, "words": words}
        return draw(logs(run_id=run_id, parent=parent, max_steps=max_steps, **options))

    out = [log("run-0")]
    for number in range(1, draw(st.integers(0, max_children)) + 1):
        above = draw(st.sampled_from(out))
        starters = [
            event.data.get("key") or event.data["signal_id"]
            for event in above
            if event.kind in (k.TOOL_REQUESTED, k.TURN_REQUESTED, k.CHILD_REQUESTED)
        ]
        key = draw(st.sampled_from([*starters, "nothing"]))
        parent = {"root": "run-0", "run_id": above[0].run_id, "key": key}
        out.append(log(f"run-{number}", parent))
    return out


class _Log:
    """A log that grows by one possible step after the other."""

    def __init__(
        self,
        draw: st.DrawFn,
        run_id: str,
        content: st.SearchStrategy[str],
        words: st.SearchStrategy[str],
    ) -> None:
        self.events: list[Event] = []
        self._keys: list[str] = []
        self._draw = draw
        self._run_id = run_id
        self._content = content
        self._words = words
        self._at = _START
        self._count = 0
        self._due: dict[str, dict[str, Any]] = {}
        self._open: dict[str, Event] = {}
        self._requested_keys: list[str] = []
        self._turns: list[str] = []
        self._signal_ids: set[str] = set()
        self._ended = False
        self._tenant = draw(st.none() | _WORDS)

    def start(self, parent: dict[str, str] | None) -> None:
        """Begin the run."""
        data: dict[str, Any] = {"algorithm": self._draw(_ALGORITHMS), "input": [self._message()]}
        data |= self._some(
            config=lambda: {"system": self._say()},
            budget=lambda: {"tokens": 1000},
            request=self._word,
        )
        if parent is not None:
            data |= {"root": parent.pop("root"), "parent": parent}
        self._add(k.RUN_STARTED, data)

    def possible(self) -> list[Callable[[], object]]:
        """Return the steps that the rules allow now."""
        steps: list[Callable[[], object]] = [self._signal]
        steps += [self._decide] * (3 if self._requested_keys else 0)
        if self._ended:
            return steps
        steps += [self._annotate, self._resume, self._ask_memory, self._ask_child]
        steps += [self._ask_summary]
        steps += [self._begin_turn] * bool(self._turns)
        steps += [self._check] * bool(self._interrupted())
        steps += [self._answer] * (6 if self._open else 0)
        if self._due:
            return [*steps, *[self._call] * 6, *[self._ask_person] * 4]
        if not any(key.startswith(("llm/", "tool/")) for key in self._open):
            steps += [self._ask_model] * 8
        return steps if self._open else [*steps, self._end]

    # -- the run and its signals -----------------------------------------------------------

    def _end(self) -> None:
        outcome = self._outcome()
        data = {"outcome": outcome, **self._some(output=self._say, error=self._error)}
        if outcome == "CANCELLED":
            data["reason"] = self._say()  # what a person has typed
        elif outcome != "COMPLETED":
            data |= self._some(reason=self._word)
        self._add(k.RUN_COMPLETED, data)
        self._ended = True

    def _resume(self) -> None:
        self._add(k.RUN_RESUMED, {"worker": "worker-2", "epoch": self._number()})

    def _annotate(self) -> None:
        """Add something that asks for nothing."""
        spent = self._some(usage=self._usage, model=self._word, provider=self._word)
        verdict = {"guard": "pii", "stage": self._word(), "verdict": self._word()}
        data: dict[str, dict[str, Any]] = {
            k.GUARD_VERDICT: {**verdict, "content_hash": "ab12", **spent},
            k.CONTEXT_SUMMARY: {"covers": "cd34", "text": self._say(), **spent},
            k.SWARM_HANDOFF: {"source": "alpha", "target": "beta"},
            k.REFLEXION_FEEDBACK: {"text": self._say()},
            k.DEBATE_TURN: {"agent": "alpha", "round": 1, "text": self._say()},
            "lib.from.a.newer.release": {"key": "llm/1", "text": self._say()},
        }
        kind = self._draw(st.sampled_from(sorted(data)))
        self._add(kind, data[kind])

    def _signal(self) -> None:
        """Add what anybody may add at any time, once, twice, or too late."""
        signal = f"signal-{self._draw(st.integers(0, 3))}"
        data: dict[str, dict[str, Any]] = {
            k.CANCEL_REQUESTED: self._some(reason=self._say),
            k.TURN_REQUESTED: {"input": [self._message()]},
            k.EVAL_SCORE: self._score(),
            "user.note": {"text": self._say()},
        }
        kind = self._draw(st.sampled_from(sorted(data)))
        if kind == k.TURN_REQUESTED and signal not in self._signal_ids:
            self._signal_ids.add(signal)
            self._turns.append(signal)
        self._add(kind, {"signal_id": signal, **data[kind]})

    def _score(self) -> dict[str, Any]:
        value = self._draw(st.floats(0, 1, width=16) | st.booleans() | self._words | self._content)
        return {
            "name": "quality",
            "value": value,
            **self._some(
                comment=self._say,
                meta=lambda: {"note": self._say()},
                source=lambda: self._draw(st.sampled_from(["llm", "human", "other"])),
                span_id=self._span_id,
            ),
        }

    def _span_id(self) -> str:  # of a span of this run, of one that may follow, or of none
        key = self._draw(st.sampled_from([*self._keys, "llm/1", "nothing"]))
        return span_id_of(self._run_id, key.partition("/")[0], key)

    def _decide(self) -> None:
        """Say yes or no to a call, whether it still waits or not."""
        key = self._draw(st.sampled_from([*self._requested_keys, "nothing"]))
        decision = {"signal_id": key, "key": key, "approved": self._draw(st.booleans())}
        self._add(k.APPROVAL_DECIDED, {**decision, **self._some(comment=self._say)})

    # -- requests --------------------------------------------------------------------------

    def _ask_model(self) -> None:
        data: dict[str, Any] = {"key": self._key("llm"), "upto": len(self.events), "digest": "ef56"}
        settings = {"temperature": 0.5, "stop": [self._say()], "reasoning_effort": self._word()}
        data |= self._some(model=lambda: "model-1", provider=self._word, settings=lambda: settings)
        self._add(k.LLM_REQUESTED, data)

    def _ask_memory(self) -> None:
        data: dict[str, Any] = {"key": self._key("memory"), "operation": self._draw(_MEMORIES)}
        data |= self._some(
            query=self._say,
            filter=lambda: {"topic": self._say()},
            records=lambda: [self._say()],
            record_id=self._word,
            store=self._word,
        )
        self._add(k.MEMORY_REQUESTED, data)

    def _ask_summary(self) -> None:
        data = {"key": self._key("summary"), "upto": len(self.events), "digest": "ef56"}
        data |= {"covers": "cd34", "messages": 2}
        self._add(k.CONTEXT_REQUESTED, {**data, **self._some(model=lambda: "model-1")})

    def _ask_child(self) -> None:
        key = self._key("child")
        self._add(k.CHILD_REQUESTED, {"key": key, "run_id": f"{self._run_id}-{key}"})

    def _begin_turn(self) -> None:
        data = {"key": self._turns.pop(0), "run_id": "child", "algorithm": "react"}
        self._add(k.TURN_STARTED, {**data, "upto": len(self.events)})

    def _ask_person(self) -> None:
        key = self._draw(st.sampled_from(sorted(self._due)))
        if key not in self._requested_keys:
            self._requested_keys.append(key)
            self._add(k.APPROVAL_REQUESTED, dict(self._due[key]))

    def _call(self) -> None:
        data = self._due.pop(self._draw(st.sampled_from(sorted(self._due))))
        if self._draw(st.integers(0, 3)):
            effects = self._draw(st.sampled_from(["none", "idempotent", "once"]))
            more = {"effects": effects, "idempotency_key": f"{self._run_id}:{data['call_id']}"}
            call = {"method": "tools/call", "session_id": self._word(), "uri": self._say()}
            more |= self._some(mcp=lambda: call, invalid=self._say)
            self._add(k.TOOL_REQUESTED, {**data, **more})
        else:
            request = self._add(k.TOOL_REQUESTED, {**data, "unstarted": True})
            self._fail_tool(request)

    def _interrupted(self) -> list[Event]:
        return [each for each in self._open.values() if each.data.get("effects") == "once"]

    def _check(self) -> None:
        """Ask what became of a call, which stays open."""
        request = self._draw(st.sampled_from(self._interrupted()))
        data = {name: request.data[name] for name in ("key", "call_id")}
        data |= self._some(reason=self._say)
        self._add(k.TOOL_CHECKED, {**data, "answer": "did_not_happen"})

    # -- results ---------------------------------------------------------------------------

    def _answer(self) -> None:
        request = self._open[self._draw(st.sampled_from(sorted(self._open)))]
        answers = {
            k.LLM_REQUESTED: self._answer_model,
            k.TOOL_REQUESTED: self._answer_tool,
            k.MEMORY_REQUESTED: self._answer_memory,
            k.CONTEXT_REQUESTED: self._answer_summary,
            k.CHILD_REQUESTED: self._answer_run,
            k.TURN_STARTED: self._answer_run,
        }
        answers[request.kind](request)

    def _answer_model(self, request: Event) -> None:
        key = {"key": request.data["key"], **self._some(attempts=lambda: 2)}
        if self._draw(st.integers(0, 3)) == 0:
            error = {**self._error(), **self._some(status=lambda: 500)}
            self._add(k.LLM_FAILED, {**key, "reason": self._reason(), "error": error})
            return
        calls = [self._new_call() for _ in range(self._draw(st.integers(0, _MAX_CALLS)))]
        parts = [{"type": "text", "text": self._say()}, *calls]
        more = self._some(
            usage=self._usage,
            model=self._word,
            id=self._word,
            stop=self._word,
            state=lambda: {"thread": self._say()},
        )
        key |= self._some(misfit=self._say, empty=lambda: True)
        self._add(k.LLM_COMPLETED, {**key, "reply": {"parts": parts, **more}})

    def _new_call(self) -> dict[str, Any]:
        key = self._key("tool", f"/{self._word()}")
        name, arguments = self._word(), {"text": self._say()}
        self._due[key] = {"key": key, "call_id": key, "name": name, "args": arguments}
        return {"type": "tool_call", "id": key, "name": name, "arguments": arguments}

    def _answer_tool(self, request: Event) -> None:
        if self._draw(st.booleans()):
            self._fail_tool(request)
            return
        data = {name: request.data[name] for name in ("key", "call_id")}
        data |= {"output": self._say(), **self._some(truncated=lambda: 100)}
        self._add(k.TOOL_COMPLETED, data)

    def _fail_tool(self, request: Event) -> None:
        data = {name: request.data[name] for name in ("key", "call_id")}
        data |= {"reason": self._reason(), "code": self._word(), "message": self._say()}
        self._add(k.TOOL_FAILED, data)

    def _answer_memory(self, request: Event) -> None:
        key = {"key": request.data["key"]}
        if self._draw(st.booleans()):
            found = self._some(records=lambda: [self._say()], count=lambda: 2, usage=self._usage)
            self._add(k.MEMORY_COMPLETED, {**key, **found})
        else:
            self._add(k.MEMORY_FAILED, {**key, "error": self._error()})

    def _answer_summary(self, request: Event) -> None:
        spent = self._some(usage=self._usage, model=self._word, provider=self._word)
        made = {"key": request.data["key"], **spent}
        if self._draw(st.booleans()):
            self._add(k.CONTEXT_SUMMARY, {**made, "covers": "cd34", "text": self._say()})
        else:
            failure = {"reason": self._reason(), "error": self._error()}
            self._add(k.CONTEXT_FAILED, {**made, **failure})

    def _answer_run(self, request: Event) -> None:
        result = self._some(output=self._say, reason=self._word, error=self._error)
        result |= {**request.data, "outcome": self._outcome()}
        turn = request.kind == k.TURN_STARTED
        result |= {"signal_id": result["key"]} if turn else {}
        self._add(k.TURN_COMPLETED if turn else k.CHILD_COMPLETED, result)

    # -- drawing ---------------------------------------------------------------------------

    def _add(self, kind: str, data: dict[str, Any]) -> Event:
        self._at += self._draw(_STEPS)
        user = self._draw(_WORDS)
        seq = len(self.events) + 1
        event = Event(self._run_id, seq, kind, data, self._at, self._tenant, user)
        self.events.append(event)
        if kind in k.REQUESTS:
            self._open[data["key"]] = event
        elif kind in k.RESULTS:
            self._open.pop(data.get("key", ""), None)  # a summary may have been made elsewhere
        return event

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _key(self, family: str, rest: str = "") -> str:
        key = f"{family}/{self._number()}{rest}"
        self._keys.append(key)
        return key

    def _usage(self) -> dict[str, Any]:
        return self._draw(_USAGES)

    def _error(self) -> dict[str, Any]:
        return {"type": self._word(), "message": self._say()}

    def _word(self) -> str:
        return self._draw(self._words)

    def _say(self) -> str:
        return self._draw(self._content)

    def _message(self) -> dict[str, Any]:
        return {"role": "user", "content": self._say()}

    def _outcome(self) -> str:
        return self._draw(st.sampled_from(k.OUTCOMES))

    def _reason(self) -> str:
        return self._draw(st.sampled_from(k.REASONS))

    def _some(self, **fields: Callable[[], Any]) -> dict[str, Any]:
        """Return some of the fields: each of them may be missing."""
        return {name: value() for name, value in fields.items() if self._draw(st.booleans())}
