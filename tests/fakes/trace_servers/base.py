"""The base of the stand-ins: keys, planned answers, and every byte that came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fakes.otlp_receiver import Drop, Hang, OnRepeat, OTLPReceiver, Request, Response

Planned: TypeAlias = Response | Hang | Drop
Route: TypeAlias = Callable[[Request], Response]


class Refused(Exception):
    """A request that a backend does not take."""

    def __init__(self, status: int, detail: Any) -> None:
        self.answer = (
            text(status, detail) if isinstance(detail, str) else Response.of(detail, status)
        )
        super().__init__(status)


class TraceServer(OTLPReceiver):
    """A backend with an OTLP endpoint and a REST API under one key.

    Attributes:
        calls: requests to the REST API, oldest first.
        planned: answers for the next of them, whatever they ask; may be added to at any time.
    """

    def __init__(
        self,
        *,
        path: str,
        on_repeat: OnRepeat,
        routes: Mapping[tuple[str, str], Route],
        accepted: Response | None = None,
    ) -> None:
        """Take where it listens, and what becomes of a span that comes again."""
        super().__init__(
            path=path,
            on_repeat=on_repeat,
            accepted=accepted,
            check=self._checked,
            routes={place: self._api(route) for place, route in routes.items()},
        )
        self.calls: list[Request] = []
        self.planned: list[Planned] = []

    @property
    def received(self) -> bytes:
        """Every byte that came: targets, headers, and bodies as they were sent and unpacked."""
        parts: list[bytes] = []
        for one in self.requests:
            head = [one.method, one.path, repr(one.query), repr(one.headers)]
            parts += [" ".join(head).encode(), one.content, one.body]
        return b"\n".join(parts)

    def refuse(self, request: Request) -> None:
        """Raise `Refused` where a request has no key, or is not as all must be."""
        raise NotImplementedError  # each backend has rules of its own

    def refuse_export(self, request: Request) -> None:
        """Raise `Refused` where an export is not as it must be, beside its key."""

    def _checked(self, request: Request) -> Response | None:
        try:
            self.refuse(request)
            self.refuse_export(request)
        except Refused as refused:
            return refused.answer
        return None

    def _api(self, route: Route) -> Callable[[Request], Planned]:
        def answer(request: Request) -> Planned:
            self.calls.append(request)
            if self.planned:
                return self.planned.pop(0)
            try:
                self.refuse(request)
                return route(request)
            except Refused as refused:
                return refused.answer

        return answer


def text(status: int, message: str) -> Response:
    """Return an answer in words."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    return Response(status=status, headers=headers, body=message.encode())


def too_many(retry_after: str = "7") -> Response:
    """Return the answer of a backend whose limit is reached."""
    answer = text(429, "rate limit exceeded")
    return Response(
        status=429, headers={**answer.headers, "retry-after": retry_after}, body=answer.body
    )
