"""Answers with a problem whatever is raised inside."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib_server.problems import Problem, problem_of
from lib_server.routing import context_of

_log: Final = logging.getLogger("lib_server")


class ProblemBoundary:
    """The one place where errors become answers; a fault of the server is logged."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

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
            request_id = context_of(scope).request_id
            problem = _problem(error, request_id)
            answer = problem.response(path=scope["path"], request_id=request_id)
            await answer(scope, receive, send)


def _problem(error: Exception, request_id: str) -> Problem:
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem is not None:
        return problem
    _log.error("request %s failed", request_id, exc_info=error)
    return Problem("internal", "the log of the server has the cause under this request id")
