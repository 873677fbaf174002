"""Constant folding: what a filter says without looking at any record (rule R10)."""

from __future__ import annotations

from lib.vector.filter.language import And, Filter, Leaf, Not, Or


def fold(filter: Filter | None) -> Filter | bool:
    """Return True where every record passes, False where none does, else a filter to translate.

    The result has no empty `$in`, `$nin`, `$and` or `$or`, no `$and` or `$or` of one part and no
    double negation, so a translator never meets the constructs that backends read differently.
    """
    match filter:
        case None:
            return True
        case Leaf(operator="$in" | "$nin", operand=()):
            return filter.operator == "$nin"
        case Not(part):
            return _complement(fold(part))
        case And(parts):
            return _junction(And, parts, neutral=True)
        case Or(parts):
            return _junction(Or, parts, neutral=False)
        case _:
            return filter


def _complement(part: Filter | bool) -> Filter | bool:
    match part:
        case bool():
            return not part
        case Not(inner):
            return inner
        case _:
            return Not(part)


def _junction(kind: type[And | Or], parts: tuple[Filter, ...], *, neutral: bool) -> Filter | bool:
    folded = [fold(part) for part in parts]
    if any(part is (not neutral) for part in folded):
        return not neutral
    kept = tuple(part for part in folded if isinstance(part, Filter))
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else kind(kept)
