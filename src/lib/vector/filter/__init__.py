"""The filter language of `lib.vector`; these rules hold in every store.

R1  A field is one top-level key of `meta`, taken literally: dots, `$`, quotes have no meaning.
    In a mapping a key that starts with `$` is an operator; `F("$x")` reaches a field of that name.
    A tuple of keys, `F("a", "b")`, is the key b of the object a; the field is absent where a step
    is missing or is no object.
R2  Metadata and operands are JSON: no NaN or infinity, no int outside 64 bits, no NUL character
    or lone surrogate in any text, no datetime, Decimal, bytes or set.
R3  A value is absent (missing or None), a bool, a number (int and float together, by value), a
    string, a list or an object. Classes are never equal and have no order between them.
R4  `$eq v`: same class and equal; `$eq None`: absent. A list or an object cannot be compared.
    `$in` is the disjunction of `$eq`; `$ne` and `$nin` are the complements.
R5  `$gt`, `$gte`, `$lt`, `$lte`: numbers with numbers, strings with strings by code point.
R6  `$contains v`: the field is a list with an element equal to v. Nothing else looks into lists.
R7  `$exists true`: the field is not absent; [] and {} are there, None is not.
R8  Two-valued logic: `$not`, `$ne`, `$nin` match where the field is absent or of another class.
R9  Several keys in a mapping, or several operators on a field, are an `$and`. An empty mapping is
    no filter. `$in []` matches nothing; an empty `$and` or `$or` is refused.
R10 Constants are folded before any store sees the filter.
R11 At most 16 levels, 16 names of a field, 256 conditions, 10,000 values in `$in`; unknown
    operators are refused.
R12 A store that cannot say a filter exactly raises `UnsupportedFilter` before any effect.

This package is pure: no I/O, no clock.
"""

from __future__ import annotations

from lib.vector.filter.evaluate import matches
from lib.vector.filter.field import Field
from lib.vector.filter.language import EVERYTHING, And, F, Filter, Leaf, Not, Or, fold

__all__ = ["EVERYTHING", "And", "F", "Field", "Filter", "Leaf", "Not", "Or", "fold", "matches"]
