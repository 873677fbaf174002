"""Laws of what is sent: nothing is torn apart or lost, and it only grows between two cuts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.context import ClipToolOutputs, KeepLast, Policy, Summarize
from lib.context.view import (
    Due,
    View,
    begin_view,
    clip,
    clip_results,
    left_view,
    measured,
    prepare,
    with_summary,
    without_summary,
)
from lib.engine.core.conversation import Conversation, History, Tail
from lib.llm import Message, Reply, Text, ToolCall, ToolResult, Usage
from lib.llm.replies import estimate_tokens
from lib.testing.providers import check_conversation

SYSTEM = Message.system("Be kind.")


@st.composite
def turns(draw: st.DrawFn) -> list[list[Message]]:
    """Return a conversation, a list for each time that a model is called with what is new."""
    new: list[list[Message]] = []
    for turn in range(draw(st.integers(1, 12))):
        size = draw(st.sampled_from([0, 40, 400]))
        steps: list[Message] = [Message.user(f"question {turn} " + "q" * size)]
        for step in range(draw(st.integers(0, 4))):
            new.append(steps)
            ids = [f"c{turn}-{step}-{n}" for n in range(draw(st.integers(1, 3)))]
            calls = [ToolCall(call_id, "look", {}) for call_id in ids]
            results = [
                Message.tool(ToolResult(call_id, "r" * draw(st.sampled_from([5, 900]))))
                for call_id in ids
            ]
            steps = [Message("assistant", tuple(calls)), *results]
        new.append(steps)
        new.append([Message.assistant(f"answer {turn}")])
    return new


POLICIES: Sequence[Sequence[Policy]] = (
    [KeepLast(6)],
    [KeepLast(at_tokens=300)],
    [ClipToolOutputs(80)],
    [ClipToolOutputs(80, keep_last=0)],
    [ClipToolOutputs(80, keep_last=1), KeepLast(at_tokens=300)],
    [Summarize(300)],
    [ClipToolOutputs(100), Summarize(400, keep_tokens=100)],
    [KeepLast(8), Summarize(300, max_tokens=400)],
    [Summarize(300, keep_tokens=299)],
)


def config(policies: Sequence[Policy], system: bool = True) -> dict[str, Any]:
    context = [policy.to_json() for policy in policies]
    return {"context": context, **({"system": SYSTEM.text} if system else {})}


def sent_view(view: View, messages: History, *, fails: bool = False) -> View:
    """Return what is sent, after the summary that is due, if one is."""
    ready = prepare(view, messages)
    if isinstance(ready, Due):
        data = {"covers": ready.covers, "messages": ready.place, "text": f"sum {ready.place}"}
        view = without_summary(view, messages) if fails else with_summary(view, messages, data)
        ready = prepare(view, messages)
    assert isinstance(ready, View), "one summary for each call"
    return ready


def play(
    policies: Sequence[Policy], steps: Sequence[Sequence[Message]], *, fails: bool = False
) -> list[tuple[View, History]]:
    """Return what is sent in each model call of a conversation, and the conversation then."""
    messages = History().append(SYSTEM)
    view = begin_view(config(policies), messages)
    assert view is not None
    seen: list[tuple[View, History]] = []
    for new in steps:
        messages = messages.extend(new)
        if messages[-1].role == "assistant":
            continue
        view = sent_view(view, messages, fails=fails)
        view = measured(view, Usage(input_tokens=estimate_tokens(view.sent) + 50))
        seen.append((view, messages))
    return seen


@given(st.sampled_from(POLICIES), turns(), st.booleans())
def test_a_strict_provider_accepts_what_is_sent(
    policies: Sequence[Policy], steps: list[list[Message]], fails: bool
) -> None:
    for view, _ in play(policies, steps, fails=fails):
        check_conversation([*view.sent])
        assert view.sent[0] == SYSTEM
        assert view.sent[1].role == "user"


@given(st.sampled_from(POLICIES), turns(), st.booleans())
def test_all_that_the_model_has_not_replied_to_is_sent_last(
    policies: Sequence[Policy], steps: list[list[Message]], fails: bool
) -> None:
    clips_at_once = ClipToolOutputs(80, keep_last=0) in policies
    for view, messages in play(policies, steps, fails=fails):
        last = len(messages) - 1
        while last and messages[last].role != "assistant":
            last -= 1
        new = messages[last + 1 :] if last else messages[1:]
        expected = [clip_results(each, 80) for each in new] if clips_at_once else new

        assert view.sent[len(view.sent) - len(new) :] == expected
        assert view.head <= len(view.sent) - len(new)


@given(st.sampled_from(POLICIES), turns())
def test_what_is_sent_only_grows_between_two_cuts(
    policies: Sequence[Policy], steps: list[list[Message]]
) -> None:
    before: View | None = None
    for view, _ in play(policies, steps):
        if before is not None and view.cut == before.cut:
            assert view.sent.first(len(before.sent)) == before.sent
        before = view


@given(st.sampled_from(POLICIES), turns())
def test_preparing_again_changes_nothing(
    policies: Sequence[Policy], steps: list[list[Message]]
) -> None:
    for view, messages in play(policies, steps):
        assert prepare(view, messages) == view


@given(st.sampled_from(POLICIES), turns())
def test_nothing_that_was_cut_comes_back(
    policies: Sequence[Policy], steps: list[list[Message]]
) -> None:
    cuts = [view.cut for view, _ in play(policies, steps)]

    for before, after in pairwise(cuts):
        assert after.place >= before.place
        assert after.clipped >= before.clipped
        assert after.covered >= before.covered


@given(turns())
def test_a_summary_covers_all_that_is_left_out(steps: list[list[Message]]) -> None:
    for view, _ in play([Summarize(300)], steps):
        assert view.cut.covered == view.cut.place
        assert bool(view.cut.place) == any("sum " in each.text for each in view.sent)


@given(turns())
def test_keep_last_never_sends_more_unless_calls_belong_together(
    steps: list[list[Message]],
) -> None:
    for view, messages in play([KeepLast(6)], steps):
        last_reply = max((n for n, m in enumerate(messages) if m.role == "assistant"), default=0)
        assert len(view.sent) - 1 <= max(6, len(messages) - last_reply + 1)


@given(st.text(max_size=400), st.integers(64, 300))
def test_a_clipped_text_has_its_length_and_clipping_it_again_changes_nothing(
    text: str, limit: int
) -> None:
    clipped = clip(text, limit)

    assert len(clipped) <= limit
    assert clip(clipped, limit) == clipped
    assert (clipped == text) == (len(text) <= limit)


def test_a_clipped_text_says_how_much_is_left_out() -> None:
    clipped = clip("a" * 500 + "b" * 500, 100)

    begin, words, end = clipped.split("\n")
    assert words == f"[... {1000 - len(begin) - len(end)} characters left out ...]"
    assert set(begin) == {"a"}
    assert set(end) == {"b"}


# -- tokens ------------------------------------------------------------------------------------


def view_of(*texts: str, rules: Policy | None = None) -> tuple[View, History]:
    messages = History().extend([SYSTEM, *(Message.user(text) for text in texts)])
    view = begin_view(config([rules or Summarize(1_000)]), messages)
    assert view is not None
    ready = prepare(view, messages)
    assert isinstance(ready, View)
    return ready, messages


def test_the_count_of_the_provider_replaces_the_estimate() -> None:
    view, _ = view_of("x" * 400)
    assert view.tokens == estimate_tokens(view.sent)

    view = measured(view, Usage(input_tokens=700))

    assert view.tokens == 700


def test_two_counts_tell_the_tokens_of_tools_from_those_of_text() -> None:
    view, messages = view_of("x" * 400)
    overhead, rate = 600, 2
    view = measured(view, Usage(input_tokens=overhead + rate * view.size))
    messages = messages.extend([Message.assistant("y" * 2_200), Message.user("z")])
    view = sent_view(view._replace(rules=view.rules._replace(sum_tokens=10_000)), messages)
    view = measured(view, Usage(input_tokens=overhead + rate * view.size))

    assert view.gauge.slope == rate
    assert view._replace(size=1_000).tokens == overhead + rate * 1_000


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=1)])
def test_a_count_of_something_else_is_ignored(usage: Usage) -> None:
    view, _ = view_of("x" * 400)

    assert measured(view, usage) == view


def test_a_request_of_little_but_tools_does_not_make_a_summary_for_each_call() -> None:
    """Tools alone are above the limit: nothing that is left out could bring it below."""
    messages = History().append(SYSTEM)
    view = begin_view(config([Summarize(300)]), messages)
    assert view is not None
    summaries = 0
    for turn in range(40):
        messages = messages.append(Message.user(f"question {turn} " + "q" * 40))
        ready = prepare(view, messages)
        summaries += isinstance(ready, Due)
        view = sent_view(view, messages)
        view = measured(view, Usage(input_tokens=estimate_tokens(view.sent) + 400))
        messages = messages.append(Message.assistant("yes"))

    assert 0 < summaries <= 15


# -- sessions ----------------------------------------------------------------------------------


def with_history(messages: History, view: View) -> Conversation:
    return Conversation(Tail(messages, 1), full=messages, view=view)


def long_talk(count: int = 40) -> list[list[Message]]:
    return [
        each
        for turn in range(count)
        for each in ([Message.user(f"q{turn} " + "q" * 50)], [Message.assistant(f"a{turn}")])
    ]


def test_the_next_turn_goes_on_with_the_view_of_the_one_before() -> None:
    view, messages = play([Summarize(300)], long_talk())[-1]
    assert view.cut.summary

    after = begin_view(config([Summarize(300)]), messages, with_history(messages, view))

    assert after is not None
    assert after.sent == view.sent


def test_other_instructions_take_the_place_of_the_old_ones_and_the_summary_stays() -> None:
    view, messages = play([Summarize(300)], long_talk())[-1]
    changed = History().extend([Message.system("Be brief."), *messages[1:]])

    settings = {**config([Summarize(300)]), "system": "Be brief."}
    after = begin_view(settings, changed, with_history(messages, view))

    assert after is not None
    assert after.cut == view.cut
    assert [*after.sent] == [Message.system("Be brief."), *view.sent[1:]]


def test_a_summary_of_what_was_erased_since_is_ignored() -> None:
    messages = History().append(SYSTEM)
    for new in long_talk(12):
        messages = messages.extend(new)
    view = begin_view(config([Summarize(200)]), messages)
    assert view is not None
    due = prepare(view, messages.append(Message.user("and?")))
    assert isinstance(due, Due)
    data = {"covers": due.covers, "messages": due.place, "text": "what was said"}
    erased = History().extend([SYSTEM, *messages[3:], Message.user("and?")])

    assert with_summary(view, erased, data).cut.summary == ""


def test_a_part_that_a_run_leaves_out_is_not_in_what_it_leaves() -> None:
    *_, (view, messages) = play([Summarize(300)], long_talk())
    before = len(messages) - 3
    kept = messages.first(before + 1)

    left = left_view(view, kept, before)

    assert left.read == before
    assert left.sent[-1] == kept[-1]


def test_what_a_run_leaves_does_not_begin_behind_what_is_left_of_it() -> None:
    view, messages = play([Summarize(300)], long_talk())[-1]
    began = view._replace(cut=view.cut._replace(place=4, covered=4, summary="of four"))
    view = view._replace(began=began.cut)

    left = left_view(view, messages.first(8), 6)

    assert left.cut.place == 4
    assert [*left.sent[2:]] == [*messages[5:8]]


def test_new_results_of_calls_made_at_once_stay_whole() -> None:
    old = [Message("assistant", (ToolCall("a", "look", {}),)), Message.tool(result("a"))]
    calls = [ToolCall(call_id, "look", {}) for call_id in "bcd"]
    new = [Message("assistant", tuple(calls)), *(Message.tool(result(each)) for each in "bcd")]

    view, messages = play([ClipToolOutputs(80, keep_last=1)], [[Message.user("x")], old, new])[-1]
    assert view.sent == messages  # clipping one would not halve it

    view, _ = play(
        [ClipToolOutputs(80, keep_last=1), KeepLast(at_tokens=900)], [[Message.user("x")], old, new]
    )[-1]
    assert view.cut.clipped
    assert [*view.sent[-3:]] == new[1:]


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id, "r" * 1_000)


def test_where_two_messages_are_all_only_the_new_one_is_sent() -> None:
    view, _ = play([KeepLast(2)], long_talk())[-1]

    assert [each.text[:3] for each in view.sent] == ["Be ", "q39"]


def test_instructions_within_a_conversation_are_not_left_out() -> None:
    rule = Message.system("Never shout.")
    steps = long_talk()
    steps[2] = [rule, *steps[2]]

    view, _ = play([KeepLast(6)], steps)[-1]

    assert [*view.sent[:2]] == [SYSTEM, rule]


def test_the_task_of_a_long_turn_is_kept() -> None:
    steps = [[Message.user("the task")]]
    for n in range(30):
        call = Message("assistant", (ToolCall(f"c{n}", "look", {}),))
        steps.append([call, Message.tool(ToolResult(f"c{n}", "seen " * 10))])

    for policy in (KeepLast(6), Summarize(300)):
        view, _ = play([policy], steps)[-1]
        texts = [each.text for each in view.sent]
        assert "the task" in texts
        assert len(texts) < 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (KeepLast, "expected a limit"),
        (lambda: KeepLast(1), "max_messages of at least 2"),
        (lambda: ClipToolOutputs(3), "max_chars of at least 64"),
        (lambda: ClipToolOutputs(keep_last=-1), "keep_last of at least 0"),
        (lambda: Summarize(0), "at_tokens of at least 1"),
        (lambda: Summarize(100, keep_tokens=100), "keep_tokens below at_tokens=100"),
        (lambda: Summarize(100, max_tokens=99), "max_tokens of at least 100"),
        (lambda: Summarize(at_tokens=True), "expected a whole number as at_tokens, got bool"),
    ],
)
def test_limits_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_reply_stays_a_reply() -> None:
    """The view has the messages themselves, and not copies."""
    reply = Reply((Text("yes"),)).message
    (view, messages), *_ = play([KeepLast(50)], [[Message.user("x"), reply, Message.user("y")]])

    assert view.sent[2] is messages[2]
