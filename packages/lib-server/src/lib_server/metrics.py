"""Counts of a server for Prometheus: `GET /metrics`. No label holds an id, a path or a tenant.

Written by hand: prometheus-client takes 0.11 s to import, a third of what this server may take, and
locks for each count; nothing here leaves the event loop.

Source: Prometheus exposition formats, text format 0.0.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REPLY_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 21, 34, 60)
RUN_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metric(Protocol):
    """Something with lines in the answer."""

    def lines(self) -> Iterator[str]:
        """Yield its description and its samples."""
        ...


class Counter:
    """Counts something by its labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        """Begin at 0.

        Args:
            name: ends with `_total`.
            text: one line of help.
            labels: the names of what tells its counts apart, each with few values.
        """
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._counts: Counts[tuple[str, ...]] = Counts()
        if not labels:
            self._counts[()] = 0

    def add(self, *values: str, count: int = 1) -> None:
        """Count so many more under these values of its labels."""
        self._counts[values] += count

    def lines(self) -> Iterator[str]:
        """Yield its description and its samples."""
        yield from _described(self._name, self._text, "counter")
        for values, count in sorted(self._counts.items()):
            yield f"{self._name}{_labels(self._labels, values)} {count}"


class Reading:
    """Reads numbers when they are wanted."""

    def __init__(
        self,
        name: str,
        text: str,
        kind: str,
        read: Callable[[], Mapping[str, float]],
        *,
        label: str = "",
    ) -> None:
        """Describe it.

        Args:
            name: of the metric.
            text: one line of help.
            kind: `gauge` or `counter`.
            read: returns the numbers by the values of the label; of one without, under "".
            label: the name of its label.
        """
        self._name, self._text, self._kind, self._read = name, text, kind, read
        self._label = label

    def lines(self) -> Iterator[str]:
        """Yield its description and its samples."""
        yield from _described(self._name, self._text, self._kind)
        names = (self._label,) if self._label else ()
        for value, number in sorted(self._read().items()):
            yield f"{self._name}{_labels(names, (value,) if names else ())} {number:.15g}"


class Histogram:
    """Counts amounts by their size, by labels."""

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        """Begin with no amount.

        Args:
            name: ends with its unit.
            text: one line of help.
            bounds: the upper ends of its buckets, ascending; the last one has no end.
            labels: as of a `Counter`.
        """
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._found: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, amount: float, *values: str) -> None:
        """Count an amount under these values of its labels."""
        found = self._found.get(values)
        if found is None:
            found = self._found[values] = ([0] * (len(self._bounds) + 1), [0.0])
        buckets, total = found
        buckets[bisect_left(self._bounds, amount)] += 1
        total[0] += amount

    def lines(self) -> Iterator[str]:
        """Yield its description and its samples."""
        yield from _described(self._name, self._text, "histogram")
        names = (*self._labels, "le")
        for values, (buckets, (total,)) in sorted(self._found.items()):
            count = 0
            for bound, each in zip((*self._bounds, float("inf")), buckets, strict=True):
                count += each
                end = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f"{self._name}_bucket{_labels(names, (*values, end))} {count}"
            labels = _labels(self._labels, values)
            yield f"{self._name}_sum{labels} {total:.9g}"
            yield f"{self._name}_count{labels} {count}"


def _described(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics as Prometheus reads them."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


class Metrics:
    """All that one server counts.

    Attributes:
        requests: answers, by method, route and status; 499 for a client that had gone.
        request_seconds: until an answer begins.
        refused: requests above a limit, by the code of the problem.
        authentication_failures: by their reason, one of few fixed words.
        first_piece_seconds: from the start of a run to the first piece of its first reply.
        run_seconds: in which runs of this process worked until they ended.
        readings: what is read elsewhere, when it is wanted.
    """

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.requests = Counter(
            "http_requests_total",
            "Answers; 499 is a client that had gone.",
            ("method", "route", "status"),
        )
        self.request_seconds = Histogram(
            "http_request_seconds",
            "Seconds until an answer begins.",
            REQUEST_SECONDS,
            ("method", "route"),
        )
        self.refused = Counter("rate_limited_total", "Requests above a limit.", ("code",))
        self.authentication_failures = Counter(
            "authentication_failures_total", "Credentials that were refused.", ("reason",)
        )
        self.first_piece_seconds = Histogram(
            "ttft_seconds",
            "Seconds from the start of a run to the first piece of its first reply.",
            REPLY_SECONDS,
        )
        self.run_seconds = Histogram(
            "run_seconds",
            "Seconds in which a run of this process worked, at its end.",
            RUN_SECONDS,
            ("agent", "outcome"),
        )
        self.readings: list[Reading] = []

    def text(self, *more: Metric) -> str:
        """Return the answer to Prometheus, with more metrics behind those that are here."""
        own: list[Metric] = [
            self.requests,
            self.request_seconds,
            self.refused,
            self.authentication_failures,
            self.first_piece_seconds,
            self.run_seconds,
        ]
        return exposition([*own, *self.readings, *more])
