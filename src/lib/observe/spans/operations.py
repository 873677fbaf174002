"""What a tool did on the way, such as a search: spans below that of its call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lib._util.operations import MOST, OperationKind
from lib.events import Event
from lib.observe import attributes as a
from lib.observe.span import span_id_of
from lib.observe.spans.run import RunSpans
from lib.observe.spans.values import identifier, items, mapping, moment, name, number, text, word

_OPERATIONS: Final[Mapping[OperationKind, str]] = {
    "retriever": "retrieval",
    "reranker": "rerank",
    "embedding": "embeddings",
}


def add_operations(run: RunSpans, event: Event, key: str) -> None:
    """Add a span for each operation that the result of a call tells of."""
    if not run.is_open("tool", key):
        return
    above = span_id_of(event.run_id, "tool", key)
    ids: list[str | None] = []
    for place, told in enumerate(items(event.data.get("operations"))[:MOST]):
        facts = mapping(told)
        ids.append(_add(run, event, f"{key}/{place}", facts, _under(facts, ids) or above))


def _under(facts: Mapping[str, Any], ids: Sequence[str | None]) -> str | None:
    """Return the id of the operation that this one is a part of, if it is of one."""
    under = facts.get("under")
    return ids[under] if isinstance(under, int) and 0 <= under < len(ids) else None


def _add(
    run: RunSpans, event: Event, key: str, facts: Mapping[str, Any], parent: str
) -> str | None:
    """Add the span of one operation; return its id, None if it cannot be read."""
    kind, start = facts.get("kind"), moment(facts.get("start"))
    if kind not in _OPERATIONS or start is None:
        return None
    model, source = name(facts.get("model")), name(facts.get("source"))
    error = word(facts.get("error"))
    attributes = {
        a.OPERATION: _OPERATIONS[kind],
        a.REQUEST_MODEL: model,
        a.DATA_SOURCE: source,
        a.TOP_K: number(facts.get("k")),
        a.DIMENSIONS: number(facts.get("dimensions")),
        a.DOCUMENT_COUNT: number(facts.get("count")),
        a.ERROR_TYPE: error,
    }
    what = source if kind == "retriever" else model
    query, found = (
        text(facts.get("query")),
        [_document(one) for one in items(facts.get("documents"))],
    )
    return run.add(
        event,
        "operation",
        key,
        (start, moment(facts.get("end")) or event.at),
        name=f"{_OPERATIONS[kind]} {what}" if what else _OPERATIONS[kind],
        kind=kind,
        attributes=attributes,
        under=parent,
        status="ok" if error is None else "error",
        shown=(
            run.content.show({"query": query} if query else None),
            run.content.show({"documents": found} if found else None),
        ),
    )


def _document(told: Any) -> dict[str, Any]:
    facts = mapping(told)
    known = {"id": identifier(facts.get("id")), "score": number(facts.get("score"))}
    return {field: value for field, value in known.items() if value is not None}
