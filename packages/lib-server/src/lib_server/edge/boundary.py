"""Answers with a problem whatever is raised inside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib_server.problems import Problem, problem_of
from lib_server.routing import context_of, route_path

_log: Final = logging.getLogger("lib_server")


class ProblemBoundary:
    """The one place where errors become answers; a fault of the server is logged."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        shapes: Mapping[str, Callable[[Problem], Response]] | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            shapes: makes the errors of paths that have another shape, by path, with all below
                those that end with "/".
        """
        self._app = app
        self._shapes = dict(shapes or {})
        self._below = tuple(path for path in self._shapes if path.endswith("/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            return
        except Exception as error:  # the boundary of a request
            if started:
                raise
            await self._answer(error, scope)(scope, receive, send)

    def _answer(self, error: Exception, scope: Scope) -> ASGIApp:
        context = context_of(scope)
        problem = _problem(error, context.request_id)
        context.problem = problem.code
        shape = self._shape(route_path(scope))
        if shape is not None:
            return shape(problem)
        return problem.response(path=scope["path"], request_id=context.request_id)

    def _shape(self, path: str) -> Callable[[Problem], Response] | None:
        below = next((each for each in self._below if path.startswith(each)), path)
        return self._shapes.get(path) or self._shapes.get(below)


def _problem(error: Exception, request_id: str) -> Problem:
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem is not None:
        return problem
    _log.error("request %s failed", request_id, exc_info=error)
    return Problem("internal", "the log of the server has the cause under this request id")
