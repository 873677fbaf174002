"""The view of a conversation that a model is sent: a pure function of the log.

1. The view shows the instructions, the summary of what is left out, and all messages from the
   place of the last cut on. It only grows until the next cut: its bytes are a prefix of what comes.
2. A cut is made before a model call where a limit is passed, far below it, and once at most: then
   the view grows again, and a provider finds it in its cache.
3. Nothing is cut that the model has not replied to, and no call is sent without its result.
4. Tokens are those that the provider has counted in the last call, and an estimate of the rest,
   which is measured against its counts: so tools and instructions are counted, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from lib._util.json import canonical, digest, digests
from lib.content.hygiene import fenced
from lib.context.policies import Rules, rules_of
from lib.engine.core.conversation import History
from lib.llm import Message, ToolResult, Usage, message_to_json
from lib.llm.replies import ASK_AGAIN, estimate_tokens

_CHARS_PER_TOKEN: Final = 4
_MEASURED: Final = 500  # tokens by which two calls differ, so that their counts say something
_BEGINNINGS: Final = 32  # for which a summary of another run is looked for
_LEFT_OUT: Final = "The beginning of this conversation is left out. What was said in it:\n"


class Cut(NamedTuple):
    """The part of a conversation that is not sent as it is, in messages without instructions.

    Attributes:
        place: the messages before it are left out.
        clipped: the results of tools before it are clipped.
        summary: of what is left out, "" for none.
        covered: the messages before it are in the summary.
        covers: the digest of those.
        systems: the places of the instructions among what is left out: they are sent all the same.
    """

    place: int = 0
    clipped: int = 0
    summary: str = ""
    covered: int = 0
    covers: str = ""
    systems: tuple[int, ...] = ()


class Gauge(NamedTuple):
    """The tokens that a provider counts, beside our estimate.

    Attributes:
        size: our estimate of the last call that it has counted.
        tokens: its count.
        least_size: our estimate of the smallest one.
        least_tokens: its count.
        slope: its tokens for one of ours.
    """

    size: int = 0
    tokens: int = 0
    least_size: int = 0
    least_tokens: int = 0
    slope: float = 1.0


class View(NamedTuple):
    """The messages that are sent.

    Attributes:
        rules: when it is cut.
        first: 1 if the conversation begins with instructions, else 0.
        sent: the messages that are sent, as far as the view was read on.
        read: how many messages of the conversation it was made from.
        size: an estimate of its tokens.
        head: how many of the messages sent stand for what is left out, with instructions.
        cut: what is not sent as it is.
        began: what was not when the run began.
        cut_at: how much was read at the last cut, -1 for none.
        gauge: what the provider counts.
        failed: how many tokens it had when its last summary failed, None if none has.
        failed_at: how much was read then, -1 for none.
    """

    rules: Rules
    first: int
    sent: History
    read: int = 0
    size: int = 0
    head: int = 0
    cut: Cut = Cut()
    began: Cut = Cut()
    cut_at: int = -1
    gauge: Gauge = Gauge()
    failed: float | None = None
    failed_at: int = -1

    @property
    def tokens(self) -> float:
        """Its tokens, as far as one can tell."""
        return self.gauge.tokens + self.gauge.slope * (self.size - self.gauge.size)


class Due(NamedTuple):
    """A summary that is due before the view can be sent.

    Attributes:
        view: the view as it is.
        place: the messages before it are to be summed up.
        covers: their digest.
        beginnings: fewer messages whose summary would do, the most first: their number and digest.
    """

    view: View
    place: int
    covers: str
    beginnings: Sequence[tuple[int, str]] = ()


def begin_view(
    config: Mapping[str, Any], messages: History, history: Sequence[Message] = ()
) -> View | None:
    """Return the view with which a run begins, None if all of a conversation is sent.

    Args:
        config: of the run.
        messages: the conversation, instructions included.
        history: what went before in a session, with the view of that.
    """
    rules = rules_of(config.get("context"))
    if rules is None:
        return None
    first = int(bool(config.get("system")))
    earlier = getattr(history, "view", None)
    if not isinstance(earlier, View) or earlier.read > len(messages) - first:
        return View(rules, first, messages.first(first), size=_size(messages[:first]), head=first)
    view = earlier._replace(rules=rules, first=first, began=earlier.cut)
    if rules == earlier.rules and first == earlier.first and view.sent[:first] == messages[:first]:
        return view
    return _rebuilt(view, messages, view.cut)


def read_on(view: View, messages: History) -> View:
    """Return the view with what the conversation has since; nothing in it is cut."""
    new = messages[view.first + view.read :]
    if view.rules.max_chars is not None and view.rules.keep_whole == 0:
        new = [clip_results(each, view.rules.max_chars) for each in new]
    if not new:
        return view
    sent, read = view.sent.extend(new), len(messages) - view.first
    return view._replace(sent=sent, read=read, size=view.size + _size(new))


def prepare(view: View, messages: History) -> View | Due:
    """Return what to send now, or the summary that is due before."""
    view = read_on(view, messages)
    if view.cut_at == view.read:  # nothing is new since it was cut
        return view
    rules = view.rules
    if rules.max_messages is not None and _count(view) > rules.max_messages:
        lowest = view.read - rules.max_messages // 2
        view = _dropped(view, messages, _place(view, messages, lowest))
    if rules.limit is None:
        return _clipped(view, messages) if _would_halve(view, messages) else view
    if view.tokens <= rules.limit:
        return view
    return _shortened(view, messages)


def _shortened(view: View, messages: History) -> View | Due:
    """Return a view that has passed a limit of tokens as it is to be sent."""
    rules, clipped = view.rules, _clipped(view, messages)
    sums = rules.sum_tokens is not None and view.tokens > rules.sum_tokens
    keep = rules.keep_tokens if sums else (rules.drop_tokens or 0) // 2
    if clipped.tokens <= keep:
        return clipped
    place = _place(view, messages, _lowest(clipped, keep, reserved=_reserved(view)))
    shortened = _dropped(view, messages, place)
    room = _reserved(view) if sums else 0
    if not _is_worth_it(view, shortened, room):
        return view
    if sums and _may_try(view):
        enough = _lowest(clipped, rules.limit or 0, reserved=room)
        return _due(view, messages, place, enough)
    if sums and view.tokens <= rules.most_tokens:
        return view
    return shortened._replace(failed=None)


def _due(view: View, messages: History, place: int, enough: int) -> Due:
    """Return the summary of what stands before a place, or of less from a turn of the user on.

    Args:
        view: the view as it is.
        messages: the conversation.
        place: see `Due`.
        enough: the first place at which what is kept fits into a request.
    """
    covered = dict(zip(range(view.cut.covered, place + 1), _covered(view, messages), strict=False))
    begins = (
        (each, covered[each])
        for each in range(place - 1, max(enough, view.cut.place + 1) - 1, -1)
        if messages[view.first + each].role == "user"
    )
    return Due(view, place, covered[place], tuple(islice(begins, _BEGINNINGS)))


def _may_try(view: View) -> bool:
    """Return True if a summary may be made: once in a call, and after a failure at the limit."""
    if view.failed is None:
        return True
    return view.failed_at != view.read and view.failed <= view.rules.most_tokens < view.tokens


def with_summary(view: View, messages: History, data: Mapping[str, Any]) -> View:
    """Return the view after `lib.context.summary`.

    A summary of something else is ignored: a turn that it covers may have been erased since.
    """
    view, place, text = read_on(view, messages), data.get("messages", 0), data.get("text", "")
    if not text:  # a redactor has left nothing of it
        return without_summary(view, messages)
    if not view.cut.place < place <= _highest(view, messages):
        return view
    covers = covered_digest(view, messages, place)
    if covers != data.get("covers"):
        return view
    cut = _moved(view, messages, place)._replace(summary=text, covered=place, covers=covers)
    return _cut(view, messages, cut)._replace(failed=None)


def without_summary(view: View, messages: History) -> View:
    """Return the view after a summary has failed."""
    view = read_on(view, messages)
    return view._replace(failed=view.tokens, failed_at=view.read)


def measured(view: View, usage: Usage) -> View:
    """Return the view after a provider has counted it."""
    tokens, gauge = usage.input_tokens, view.gauge
    if tokens * 8 < view.size or not tokens:  # it counts something else, or nothing
        return view
    if not gauge.tokens or view.size < gauge.least_size:
        gauge = gauge._replace(least_size=view.size, least_tokens=tokens)
    slope, more = gauge.slope, view.size - gauge.least_size
    if more >= _MEASURED:
        slope = _between(0.25, (tokens - gauge.least_tokens) / more, 8.0)
    elif view.size >= _MEASURED and not gauge.tokens:
        slope = _between(0.5, tokens / view.size, 3.0)
    return view._replace(gauge=gauge._replace(size=view.size, tokens=tokens, slope=slope))


def left_view(view: View, messages: History, before: int) -> View:
    """Return the view of what a run leaves of its conversation.

    Args:
        view: of the conversation in that run.
        messages: what is left of it.
        before: how many messages there were before the run, instructions not counted: all are left.
    """
    if view.read <= len(messages) - view.first:
        last = messages[view.first + view.read - 1] if view.read else None
        if last is None or view.sent[-1] in (last, clip_results(last, view.rules.max_chars or 64)):
            return view
    cut = view.cut if max(view.cut.place, view.cut.covered) <= before else view.began
    cut = cut._replace(clipped=min(cut.clipped, before))
    return _rebuilt(view, messages, cut)._replace(cut_at=-1, failed_at=-1)


def covered_digest(view: View, messages: History, place: int) -> str:
    """Return the digest of the messages before a place, from that of those summed up already."""
    return next(islice(_covered(view, messages), place - view.cut.covered, None))


def _covered(view: View, messages: History) -> Iterator[str]:
    """Yield the digest of the messages before each place, from that on which are not summed up."""
    new = messages[view.first + view.cut.covered :]
    return digests(chain([view.cut.covers], (canonical(message_to_json(each)) for each in new)))


# -- cuts --------------------------------------------------------------------------------------


def _rebuilt(view: View, messages: History, cut: Cut) -> View:
    """Return the view with another cut."""
    first, rules = view.first, view.rules
    head: list[Message] = [*messages[:first], *(messages[first + each] for each in cut.systems)]
    if cut.summary:
        boundary = (cut.covers or digest(cut.summary))[:16]
        text = fenced(cut.summary, source="a summary of the conversation", boundary=boundary)
        head.append(Message.user(_LEFT_OUT + text))
    kept = messages[first + cut.place :]
    if cut.place and kept and kept[0].role != "user":
        head += _task(messages, first, cut.place, rules)
    shown = [
        clip_results(each, rules.max_chars)
        if rules.max_chars is not None and (number < cut.clipped or rules.keep_whole == 0)
        else each
        for number, each in enumerate(kept, cut.place)
    ]
    return view._replace(
        sent=messages.first(first).extend([*head[first:], *shown]),
        read=len(messages) - first,
        size=_size(head) + _size(shown),
        head=len(head),
        cut=cut,
    )


def _task(messages: History, first: int, place: int, rules: Rules) -> list[Message]:
    """Return the last message of the user before a place: what is kept goes on from it."""
    for number in range(first + place - 1, first - 1, -1):
        message = messages[number]
        if message.role == "user" and message != ASK_AGAIN:
            if rules.limit is not None and _size([message]) * 4 > rules.limit:
                return [Message.user(clip(message.text, max(rules.limit, 64)))]
            return [message]
    return []


def _cut(view: View, messages: History, cut: Cut) -> View:
    return _rebuilt(view, messages, cut)._replace(cut_at=view.read)


def _dropped(view: View, messages: History, place: int) -> View:
    """Return the view without the messages before a place."""
    if place <= view.cut.place:
        return view
    return _cut(view, messages, _moved(view, messages, place))


def _moved(view: View, messages: History, place: int) -> Cut:
    between = range(view.cut.place, place)
    more = [each for each in between if messages[view.first + each].role == "system"]
    return view.cut._replace(
        place=place, clipped=_bound(view, messages), systems=(*view.cut.systems, *more)
    )


def _clipped(view: View, messages: History) -> View:
    """Return the view with the results clipped that are old enough."""
    bound = _bound(view, messages)
    if bound <= view.cut.clipped:
        return view
    return _cut(view, messages, view.cut._replace(clipped=bound))


def _bound(view: View, messages: History) -> int:
    """Return the place before which results are clipped."""
    if view.rules.max_chars is None or view.rules.keep_whole == 0:
        return view.cut.clipped
    left, highest = view.rules.keep_whole, _highest(view, messages)
    for number in range(view.read - 1, view.cut.place - 1, -1):
        if messages[view.first + number].role == "tool":
            left -= 1
            if left < 0:
                return max(view.cut.clipped, min(number + 1, highest))
    return view.cut.clipped


def _would_halve(view: View, messages: History) -> bool:
    """Return True if clipping alone makes half as much of what is sent."""
    bound, most = _bound(view, messages), (view.rules.max_chars or 0) // _CHARS_PER_TOKEN
    places = range(max(view.cut.clipped, view.cut.place), bound)
    results = (messages[view.first + each] for each in places)
    saved = sum(max(0, _size([each]) - most) for each in results if each.role == "tool")
    return saved * 2 >= view.size > 0


def _count(view: View) -> int:
    """Return how many messages of the conversation are sent."""
    return len(view.sent) - view.first - bool(view.cut.summary) - len(view.cut.systems)


def _is_worth_it(view: View, shortened: View, room: int) -> bool:
    """Return True if a cut brings the view below its limit, or by a good part nearer to it."""
    if shortened is view:
        return False
    size = shortened.size + room
    after = shortened._replace(size=size).tokens
    return after <= (view.rules.limit or 0) or size * 4 <= view.size * 3


def _reserved(view: View) -> int:
    """Return the room for a new summary, beyond that of the old one."""
    if view.rules.sum_tokens is None:
        return 0
    new, old = view.rules.summary_chars, len(view.cut.summary)
    return max(0, new - old) // _CHARS_PER_TOKEN


def _lowest(view: View, keep: int, *, reserved: int) -> int:
    """Return the place from which on the messages have at most so many tokens."""
    gauge = view.gauge
    wanted = gauge.size + (keep - gauge.tokens) / gauge.slope
    head = _size(view.sent[: view.head]) + reserved
    # Where tools and instructions alone take most of it, a part is kept all the same.
    left = max(wanted - head, keep / gauge.slope / 4)
    for number in range(len(view.sent) - 1, view.head - 1, -1):
        left -= _size([view.sent[number]])
        if left < 0:
            return view.read - (len(view.sent) - number) + 1
    return view.cut.place


def _place(view: View, messages: History, lowest: int) -> int:
    """Return where the messages that are kept begin: best where the user has begun a turn."""
    highest = _highest(view, messages)
    if lowest >= highest:
        return highest
    begins = [
        each
        for each in range(lowest, highest + 1)
        if messages[view.first + each].role in ("user", "assistant")
    ]
    half = (lowest + view.read) // 2
    turns = (each for each in begins if messages[view.first + each].role == "user")
    turn = next(turns, None)
    return turn if turn is not None and turn <= half else begins[0]


def _highest(view: View, messages: History) -> int:
    """Return the last place before which all may be cut: what is new to the model is kept."""
    last = view.read - 1
    while last >= 0 and messages[view.first + last].role != "assistant":
        last -= 1
    following = last + 1
    if following < view.read and messages[view.first + following].role == "user":
        return following
    return max(last, 0)


# -- texts -------------------------------------------------------------------------------------


def clip_results(message: Message, max_chars: int) -> Message:
    """Return the message with the results of tools in it clipped."""
    if message.role != "tool":
        return message
    parts = [
        replace(part, content=clip(part.content, max_chars))
        if isinstance(part, ToolResult) and len(part.content) > max_chars
        else part
        for part in message.parts
    ]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=tuple(parts))


def clip(text: str, max_chars: int) -> str:
    """Return the beginning and the end of a text, with how much is left out between them.

    Args:
        text: is returned as it is, if it is short enough.
        max_chars: of the text that is returned, 64 or more.
    """
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_omitted(len(text)))
    begin = room * 2 // 3
    end = room - begin
    return text[:begin] + _omitted(len(text) - room) + text[len(text) - end :]


def _omitted(chars: int) -> str:
    return f"\n[... {chars} characters left out ...]\n"


def _size(messages: Sequence[Message]) -> int:
    return estimate_tokens(messages)


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)
