"""The algorithms of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lib.engine.core.algorithm import Algorithm
from lib.engine.core.session import SESSION, SessionLoop
from lib.engine.given import check_has, kind_of, listed
from lib.errors import UnknownAlgorithm


class Algorithms(Mapping[str, Algorithm[Any]]):
    """Algorithms by name; that of sessions is among them without being told.

    Attributes:
        default: the name of the first one.
    """

    def __init__(self, algorithms: Iterable[Algorithm[Any]]) -> None:
        """Keep them.

        Raises:
            TypeError: one is none, or is given alone.
            ValueError: two have one name, or there is none.
        """
        self._by_name: dict[str, Algorithm[Any]] = {SESSION: SessionLoop()}
        given: list[str] = []
        for algorithm in listed(algorithms, "algorithms", "[React()]"):
            check_has(algorithm, "decide", "is no algorithm: give an instance, such as React()")
            taken = algorithm.name == SESSION and not isinstance(algorithm, SessionLoop)
            if taken or algorithm.name in given:
                raise ValueError(f"two algorithms of one engine have the name {algorithm.name!r}")
            given.append(algorithm.name)
            self._by_name[algorithm.name] = algorithm
        if not given:
            raise ValueError("an engine needs at least one algorithm")
        self.default = given[0]
        self._given = tuple(given)

    def chosen(self, name: object) -> Algorithm[Any]:
        """Return the algorithm that somebody has named, the first one for None.

        Raises:
            UnknownAlgorithm: there is none.
            TypeError: it is no name, such as the algorithm itself.
        """
        if name is not None and not isinstance(name, str):
            told = f"an algorithm is named, as by {self.default!r}"
            raise TypeError(f"{told}, got {kind_of(name)}")
        return self.known(name or self.default)

    def known(self, name: str) -> Algorithm[Any]:
        """Return the algorithm of this name.

        Raises:
            UnknownAlgorithm: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownAlgorithm(name, known=self._given) from None

    def __getitem__(self, name: str) -> Algorithm[Any]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)
