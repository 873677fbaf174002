"""The words of prompt injection, by what they mean: one row a concept, one column a language. Data.

A term is a word or several in a row; `*` at the end of a word stands for any ending. Terms are
folded as texts are (`lib.guards.unveil`): accents and case do not matter. A concept whose name
ends in `!` is a verb that counts only where it is an order (`lib.guards.concepts`); the term of the
row "nothing" is read first and means nothing, so that "vergiss nicht" does not mean "vergiss".

Columns: English, German, French, Spanish, Italian, Portuguese, Dutch, Chinese, Japanese, Russian.
Sources of the classes, not of the words: OWASP Top 10 for LLM Applications (2025), LLM01; Perez and
Ribeiro (2022), arXiv:2211.09527; Greshake et al. (2023), arXiv:2302.12173.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lib.guards.terms_deeds import DEEDS
from lib.guards.terms_orders import ORDERS

TERMS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({**ORDERS, **DEEDS})
