"""Stand-ins for SearXNG and Brave Search on real sockets, unpleasant parts included.

They search a handful of pages that a test gives them, and answer as the real ones do: SearXNG as
its revision of 2026-08 was seen to, Brave as its reference of 2026-11 and recorded answers say.
"""

from __future__ import annotations

import html
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.testing.http import HTTPServer, Reaction, Request, Response

API_KEY: Final = "BSA-test-0123456789abcdef"
MONTH_S: Final = 2_592_000
_TEXT: Final = {"content-type": "text/plain"}
_HTML: Final = {"content-type": "text/html; charset=utf-8"}
_FORBIDDEN: Final = (
    b"<!doctype html>\n<html lang=en>\n<title>403 Forbidden</title>\n<h1>Forbidden</h1>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A page that can be found.

    Attributes:
        title: as an engine sends it, so maybe with markup.
        published: an ISO date.
    """

    url: str
    title: str
    text: str
    published: str | None = None


def found(pages: Sequence[WebPage], query: str) -> list[WebPage]:
    """Return the pages that hold a word of the query, those with most of them first."""
    words = {word.casefold() for word in re.findall(r"\w+", query)}
    scores = [
        (len(words & set(re.findall(r"\w+", f"{page.title} {page.text}".casefold()))), page)
        for page in pages
    ]
    best = sorted(scores, key=lambda scored: -scored[0])
    return [page for score, page in best if score]


class _Stub:
    """A server whose answers can be replaced for some requests.

    Attributes:
        pages: what there is to find.
        script: taken first, one for each search; None is the usual answer.
    """

    def __init__(self, pages: Sequence[WebPage]) -> None:
        self.pages = list(pages)
        self.script: list[Reaction | None] = []
        self._http = HTTPServer()

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:  # noqa: PYI036 - handed on
        await self._http.__aexit__(*error)

    @property
    def base_url(self) -> str:
        """The address to give a provider."""
        return self._http.base_url

    @property
    def requests(self) -> list[Request]:
        """The requests, oldest first."""
        return self._http.requests

    def _scripted(self) -> Reaction | None:
        return self.script.pop(0) if self.script else None


# -- SearXNG -----------------------------------------------------------------------------------


@dataclass(slots=True)
class SearXNGQuery:
    """A query as the server reads it: some of its words are commands."""

    query: str
    engines: list[str] = field(default_factory=list[str])
    languages: list[str] = field(default_factory=list[str])
    timeout_limit_s: float | None = None
    external_bang: str | None = None
    lucky: bool = False  # which redirects a client that wants HTML


class SearXNGServer(_Stub):
    """SearXNG without engines, under any path.

    Attributes:
        formats: `search.formats` of its settings, which is HTML alone by default.
        limiter: whether it is on, for clients that are not pass-listed.
        more: parts of the body beside the results, as `{"answers": [...]}`.
        queries: how it understood each query.
    """

    SHORTCUTS: Final = ("g", "ddg", "wp", "lt")

    def __init__(
        self,
        pages: Sequence[WebPage] = (),
        *,
        formats: Sequence[str] = ("html", "json"),
        limiter: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(pages)
        self.formats, self.limiter, self.more = formats, limiter, dict(more or {})
        self.queries: list[SearXNGQuery] = []
        self._api_requests = 0
        self._http.routes = {("GET", "/"): self._get, ("POST", "/"): self._get}

    def _get(self, request: Request) -> Reaction:
        if not request.path.endswith("/search"):
            query = "&".join(f"{name}={quote(v[0])}" for name, v in request.query.items())
            return Response(status=308, headers={"location": f"/search?{query}"})
        if (scripted := self._scripted()) is not None:
            return scripted
        parameters = {name: values[-1] for name, values in request.query.items()}
        form = parameters.get("format", "html")
        if form in {"json", "csv", "rss"} and form not in self.formats:
            return Response(status=403, headers=_HTML, body=_FORBIDDEN)
        if self.limiter and self._limited(request, form):
            return Response(status=429, headers=_TEXT, body=b"Too Many Requests")
        if form != "json":  # an unknown one, too
            return Response(headers=_HTML, body=b"<!DOCTYPE html><html><body>results</body></html>")
        return self._refusal(parameters) or self._found(parameters)

    def _limited(self, request: Request, form: str) -> bool:
        """Tell whether the limiter turns the client away: `searx/botdetection/`."""
        self._api_requests += form != "html"
        headers = request.headers
        agent = headers.get("user-agent", "")
        return (
            not agent
            or bool(re.match(r"(?i)unknown|curl|wget|scrapy|java|python|go-http", agent))
            or "text/html" not in headers.get("accept", "")
            or not headers.get("accept-language", "").strip()
            or not {"gzip", "deflate"} & set(re.findall(r"\w+", headers.get("accept-encoding", "")))
            or headers.get("connection", "").lower() == "close"
            or self._api_requests > 4  # an hour
        )

    def _refusal(self, parameters: Mapping[str, str]) -> Response | None:
        if not parameters.get("q", "").strip():
            return Response.of({"error": "No query"}, 400)
        rules = {
            "safesearch": r"[012]",
            "language": r"all|auto|[a-z]{2,3}([-_][a-zA-Z]{2,4}){0,2}",
            "pageno": r"[1-9]\d*",
            "time_range": r"(day|week|month|year)?",
        }
        for name, rule in rules.items():
            if name in parameters and not re.fullmatch(rule, parameters[name]):
                error = f"Invalid value {parameters[name]} for parameter {name}"
                return Response.of({"error": error}, 400)
        return None

    def _found(self, parameters: Mapping[str, str]) -> Response:
        understood = self._understood(parameters["q"])
        self.queries.append(understood)
        if understood.external_bang:
            to = f"https://www.google.com/search?q={quote(understood.query)}"
            return Response(status=302, headers={"location": to})
        pages = found(self.pages, understood.query)
        about_you = {"answer": "IP: 127.0.0.1", "url": None, "engine": "plugin: self_info"}
        body = {
            "query": understood.query,
            "results": [_searxng_result(place, page) for place, page in enumerate(pages, 1)],
            "answers": [about_you] if understood.query == "ip" else [],
            "corrections": [],
            "infoboxes": [],
            "suggestions": [],
            "unresponsive_engines": [],
        }
        return Response.of({**body, **self.more})

    def _understood(self, query: str) -> SearXNGQuery:
        """Take commands out of the query, each word of which may be one: `searx/query.py`."""
        understood, words = SearXNGQuery(""), list[str]()
        for word in query.split():
            if not self._command(understood, word):
                words.append(word)
        understood.query = " ".join(words)
        return understood

    def _command(self, understood: SearXNGQuery, word: str) -> bool:
        if word[0] == "<" and word[1:].isdigit():
            limit = int(word[1:])
            understood.timeout_limit_s = limit if limit < 100 else limit / 1_000
        elif word[0] == ":" and re.fullmatch(r"[a-z]{2,3}([-_][a-zA-Z]{2})?|auto", word[1:]):
            understood.languages.append(word[1:])
        elif word == "!!":
            understood.lucky = True
        elif word.startswith("!!") and word[2:] in self.SHORTCUTS:
            understood.external_bang = word[2:]
        elif word[0] == "!" and word[1:] in self.SHORTCUTS:
            understood.engines.append(word[1:])
        else:
            return False
        return True


def _searxng_result(place: int, page: WebPage) -> dict[str, Any]:
    parts = urlsplit(page.url)
    return {
        "template": "default.html",
        "title": page.title,
        "content": page.text,
        "img_src": "",
        "thumbnail": "",
        "publishedDate": page.published,
        "engines": ["stub"],
        "positions": [place],
        "score": 1 / place,
        "category": "general",
        "url": page.url,
        "engine": "stub",
        "parsed_url": [parts.scheme, parts.netloc, parts.path, "", parts.query, parts.fragment],
    }


# -- Brave Search ------------------------------------------------------------------------------


class BraveServer(_Stub):
    """The web search of Brave's API.

    Attributes:
        per_second: how many searches of one second are answered.
        per_month: and of a month; 0 is unlimited.
        searches: how many were answered; those that failed do not count.
    """

    def __init__(
        self,
        pages: Sequence[WebPage] = (),
        *,
        per_second: int = 20,
        per_month: int = 2_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(pages)
        self.per_second, self.per_month, self.clock = per_second, per_month, clock
        self.searches = 0
        self._served_at: list[float] = []
        self._http.routes = {("GET", "/res/v1/web/search"): self._get}

    def _get(self, request: Request) -> Reaction:
        if (scripted := self._scripted()) is not None:
            return scripted
        parameters = {name: values[-1] for name, values in request.query.items()}
        if refusal := self._refusal(request, parameters):
            return refusal
        now = self.clock.monotonic()
        self._served_at = [at for at in self._served_at if at > now - 1]
        empty = 0 < self.per_month <= self.searches
        if empty or len(self._served_at) >= self.per_second:
            return self._limited()
        self.searches += 1
        self._served_at.append(now)
        body = json.dumps(_brave_body(parameters, found(self.pages, parameters["q"]))).encode()
        headers = {"content-type": "application/json", **self._rates()}
        if "gzip" in request.headers.get("accept-encoding", ""):
            packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
            body = packer.compress(body) + packer.flush()
            headers["content-encoding"] = "gzip"
        return Response(headers=headers, body=body)

    def _refusal(self, request: Request, parameters: Mapping[str, str]) -> Response | None:
        key = request.headers.get("x-subscription-token")
        if key is None:
            return _invalid(["header", "x-subscription-token"], None)
        if key != API_KEY:
            detail = f"The provided subscription token is invalid: {key}"
            return _brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", detail, "authentication")
        fault = next(_faults(parameters), None)
        return _invalid(["query", fault], parameters.get(fault)) if fault else None

    def _limited(self) -> Response:
        meta = {
            "plan": "Free",
            "rate_limit": self.per_second,
            "rate_current": len(self._served_at),
            "quota_limit": self.per_month,
            "quota_current": self.searches,
            "component": "rate_limiter",
        }
        detail = "Request rate limit exceeded for plan"
        return _brave_error(429, "RATE_LIMITED", detail, meta=meta, headers=self._rates())

    def _rates(self) -> dict[str, str]:
        left = self.per_second - len(self._served_at), max(0, self.per_month - self.searches)
        return {
            "x-ratelimit-limit": f"{self.per_second}, {self.per_month}",
            "x-ratelimit-policy": f"{self.per_second};w=1, {self.per_month};w={MONTH_S}",
            "x-ratelimit-remaining": f"{left[0]}, {left[1]}",
            "x-ratelimit-reset": "1, 1419704",
        }


def _faults(parameters: Mapping[str, str]) -> Iterator[str]:
    query = parameters.get("q", "")
    if not 1 <= len(query) <= 400 or len(query.split()) > 50:
        yield "q"
    rules = {
        "count": r"[1-9]|1\d|20",
        "offset": r"\d",
        "safesearch": r"off|moderate|strict",
        "country": r"[A-Z]{2}|ALL",
        "text_decorations": r"true|false|0|1",
    }
    for name, rule in rules.items():
        if name in parameters and not re.fullmatch(rule, parameters[name]):
            yield name


def _invalid(place: Sequence[str], value: str | None) -> Response:
    fault = {"type": "invalid", "loc": list(place), "msg": "Input is not valid", "input": value}
    meta = {"errors": [fault], "component": "validation"}
    return _brave_error(422, "VALIDATION", "Unable to validate request parameter(s)", meta=meta)


def _brave_error(
    status: int,
    code: str,
    detail: str,
    component: str = "",
    *,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    error = {
        "id": "5d832250-9396-4f6e-b84a-2a1fe524cd7d",
        "status": status,
        "detail": detail,
        "meta": meta or {"component": component},
        "code": code,
    }
    body = json.dumps({"type": "ErrorResponse", "error": error, "time": 1_763_700_000}).encode()
    return Response(
        status=status, headers={"content-type": "application/json", **(headers or {})}, body=body
    )


def _brave_body(parameters: Mapping[str, str], pages: Sequence[WebPage]) -> dict[str, Any]:
    count = int(parameters.get("count", "20"))
    decorated = parameters.get("text_decorations", "true") in {"true", "1"}
    body: dict[str, Any] = {
        "type": "search",
        "query": {"original": parameters["q"], "more_results_available": len(pages) > count},
        "mixed": {"type": "mixed", "main": [], "top": [], "side": []},
    }
    results = [_brave_result(page, parameters["q"], decorated=decorated) for page in pages[:count]]
    if results:
        body["web"] = {"type": "search", "results": results, "family_friendly": True}
    return body


def _brave_result(page: WebPage, query: str, *, decorated: bool) -> dict[str, Any]:
    text = html.escape(page.text)
    if decorated:
        words = "|".join(map(re.escape, re.findall(r"\w+", query)))
        text = re.sub(rf"(?i)\b({words})\b", r"<strong>\1</strong>", text)
    parts = urlsplit(page.url)
    result = {
        "title": html.escape(page.title),
        "url": page.url,
        "is_source_local": False,
        "is_source_both": False,
        "description": text,
        "language": "en",
        "family_friendly": True,
        "type": "search_result",
        "subtype": "generic",
        "profile": {"name": parts.hostname, "url": page.url, "long_name": parts.hostname},
        "meta_url": {"scheme": parts.scheme, "netloc": parts.netloc, "path": parts.path},
    }
    if page.published:
        result |= {"page_age": page.published, "age": "3 days ago"}
    return result
