"""The REST side of a backend: what is a failure, and what a failure tells."""

import asyncio
import gzip
import json
import logging
from collections.abc import Sequence

import httpx2
import pytest

from fakes.otlp_receiver import Drop, Hang, HTTPServer, Request, Response
from lib.errors import ExportError
from lib.evals import Score
from lib.observe.sinks.rest import Reply, RestAPI, address_of, checked_key, checked_url, send_each
from lib.testing.aio import run
from lib.testing.clock import ManualClock

SECRET = "5ecret"


async def served(answer: Response | Drop, *, body: object = None, also: Sequence[int] = ()):
    """Return what one call gives, and the request that came."""

    async def main() -> tuple[Reply, Request]:
        async with HTTPServer({("POST", "/api/things"): lambda _: answer}) as server:
            headers = {"authorization": f"Bearer {SECRET}"}
            base = f"{server.base_url}/api"
            api = RestAPI("Backend", base, headers, http=None, clock=ManualClock())
            try:
                return await api.call("POST", "/things", body=body, also=also), server.requests[0]
            finally:
                await api.aclose()
                await api.aclose()

    return await main()


async def failure(answer: Response | Drop, *, body: object = None) -> ExportError:
    with pytest.raises(ExportError) as raised:
        await served(answer, body=body)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    return raised.value


async def test_a_call_sends_json_with_its_headers_and_returns_json():
    body = {"name": "quality", "comment": "höher"}

    reply, request = await served(Response.of({"id": "1"}, 201), body=body)

    assert (reply.status, reply.value) == (201, {"id": "1"})
    assert (request.method, request.path, request.json()) == ("POST", "/api/things", body)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == f"Bearer {SECRET}"


async def test_a_query_is_quoted():
    async with HTTPServer({("GET", "/things"): lambda _: Response.of([])}) as server:
        api = RestAPI("Backend", server.base_url, {}, http=None, clock=ManualClock())
        await api.call("GET", "/things", query={"name": "a&b=c d/ü", "limit": "1"})
        await api.aclose()
        request = server.requests[0]

    assert request.query == {"name": ["a&b=c d/ü"], "limit": ["1"]}
    assert request.content == b""


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
async def test_an_answer_that_is_no_json_is_no_value(body: bytes):
    reply, _ = await served(Response(body=body))

    assert reply.value is None


async def test_a_compressed_answer_is_read():
    body = gzip.compress(json.dumps({"a": 1}).encode())

    reply, _ = await served(Response(headers={"content-encoding": "gzip"}, body=body))

    assert reply.value == {"a": 1}


async def test_an_expected_status_is_not_a_failure():
    reply, _ = await served(Response(status=404, body=b"Spans do not exist"), also=(404,))

    assert (reply.status, reply.value) == (404, None)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_refused_and_not_followed(status: int):
    error = await failure(Response(status=status, headers={"location": "http://127.0.0.1:9/"}))

    assert error.permanent
    assert f"answered {status}, a redirect" in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422])
async def test_a_refusal_is_permanent_and_repeats_nothing_of_what_was_said(status: int):
    refusal = {"error": f"bad key {SECRET}", "code": "x"}

    error = await failure(Response.of(refusal, status), body={"comment": SECRET})

    assert error.permanent
    assert str(error).startswith(f"Backend answered {status}")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507])
async def test_what_may_pass_is_not_permanent(status: int):
    error = await failure(Response(status=status, headers={"retry-after": "7"}))

    assert not error.permanent
    assert error.retry_after_s == 7


async def test_a_date_to_retry_after_counts_by_the_clock():
    date = "Thu, 01 Jan 2026 00:00:30 GMT"

    error = await failure(Response(status=429, headers={"retry-after": date}))

    assert error.retry_after_s == 30


async def test_a_lost_connection_is_not_permanent():
    error = await failure(Drop())

    assert not error.permanent


async def test_an_answer_that_is_too_large_is_permanent():
    error = await failure(Response(body=b" " * (5 << 20)))

    assert error.permanent


async def test_an_error_about_json_does_not_show_the_value():
    error = await failure(Response(), body={"meta": {SECRET}})

    assert error.permanent


async def test_the_callers_client_stays_open():
    async def main() -> bool:
        async with (
            HTTPServer({("POST", "/x"): lambda _: Response.of({})}) as server,
            httpx2.AsyncClient() as http,
        ):
            api = RestAPI("Backend", server.base_url, {}, http=http, clock=ManualClock())
            await api.call("POST", "/x")
            await api.aclose()
            return http.is_closed

    assert (await main()) is False


async def test_closing_waits_for_a_call_under_way():
    came, answer = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        came.set()
        await answer.wait()
        return Response.of({})

    async def main() -> int:
        async with HTTPServer({("POST", "/x"): slow}) as server:
            api = RestAPI("Backend", server.base_url, {}, http=None, clock=ManualClock())
            calling = asyncio.create_task(api.call("POST", "/x"))
            await came.wait()
            closing = asyncio.create_task(api.aclose())
            await asyncio.wait([closing], timeout=0.01)
            answer.set()
            reply = await calling
            await closing
            return reply.status

    assert (await main()) == 200


async def test_a_cancelled_call_leaves_the_api_usable():
    async def main() -> int:
        came, answers = asyncio.Event(), [Hang(), Response.of({})]

        def answer(_: Request) -> Hang | Response:
            came.set()
            return answers.pop(0)

        async with HTTPServer({("POST", "/x"): answer}) as server:
            api = RestAPI("Backend", server.base_url, {}, http=None, clock=ManualClock())
            first = asyncio.create_task(api.call("POST", "/x"))
            await came.wait()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            reply = await api.call("POST", "/x")
            await api.aclose()
            return reply.status

    assert (await main()) == 200


# -- several scores ----------------------------------------------------------------------------


async def sent(*outcomes: ExportError | None) -> tuple[list[str], ExportError | None]:
    """Return the names that were sent, and what was raised."""
    scores = [Score(name=str(number), value=1) for number in range(len(outcomes))]
    names: list[str] = []

    async def send(score: Score) -> None:
        names.append(score.name)
        outcome = outcomes[int(score.name)]
        if outcome is not None:
            raise outcome

    try:
        await send_each(scores, send)
    except ExportError as error:
        return names, error
    return names, None


async def test_a_score_that_is_refused_for_good_holds_no_other_back():
    refused = ExportError("no", permanent=True)

    assert (await sent(None, refused, ExportError("neither", permanent=True), None)) == (
        ["0", "1", "2", "3"],
        refused,
    )


async def test_a_failure_that_may_pass_ends_the_sending():
    later = ExportError("later", retry_after_s=3)

    assert (await sent(None, ExportError("no", permanent=True), later, None)) == (
        ["0", "1", "2"],
        later,
    )


async def test_a_failure_tells_how_many_of_the_first_scores_are_not_to_be_sent_again():
    refused = ExportError("no", permanent=True)

    _, first = await sent(None, ExportError("no", permanent=True), None, refused)
    _, later = await sent(None, refused, None, ExportError("later"), None)

    assert first is not None
    assert first.taken_scores == 1  # the second may be taken when its reason is gone
    assert later is not None
    assert later.taken_scores == 3  # to begin with one that is refused would not lead on
    assert later.__notes__ == ["a score before was refused for good: no"]


async def test_with_a_wrong_key_no_further_score_is_tried():
    wrong = ExportError("check the key", permanent=True, setup=True)

    names, error = await sent(wrong, None, None)

    assert (names, error, wrong.taken_scores) == (["0"], wrong, 0)


def test_more_scores_are_under_way_each_time_up_to_sixteen_and_never_two_of_one_name():
    rounds = list[list[str]]()
    under_way = list[str]()

    async def send(score: Score) -> None:
        under_way.append(score.name)
        await asyncio.sleep(0)  # noqa: TID251 - lets the others begin
        if under_way:
            rounds.append(under_way.copy())
            under_way.clear()

    def names(*scores: Score) -> list[int]:
        rounds.clear()
        run(send_each(scores, send))
        return [len(each) for each in rounds]

    assert names(*[Score(name=str(number), value=1) for number in range(40)]) == [1, 2, 4, 8, 16, 9]
    assert names(*[Score(name="same", value=number) for number in range(4)]) == [1, 1, 1, 1]


async def test_an_error_that_is_none_of_a_sink_is_raised_as_it_is():
    async def send(score: Score) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send_each([Score(name="x", value=1)], send)


async def test_all_scores_are_sent_in_order():
    assert (await sent(None, None)) == (["0", "1"], None)


# -- what a sink is given ----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "a\r\nx-evil: 1", "ä", "\x00", "\x7f"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_without_repeating_it(key: str):
    with pytest.raises(ValueError, match=r"^secret_key (is empty|has a character)") as raised:
        checked_key(key, "secret_key")

    assert not key.strip() or key not in str(raised.value)


def test_a_key_is_taken_as_it_is():
    assert checked_key("sk-lf-0_.~", "secret_key") == "sk-lf-0_.~"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6006",
        "ftp://host",
        "https://",
        "http://host:port",
        "http://[::1",
        f"https://user:{SECRET}@host",
        f"https://host/?key={SECRET}",
        f"https://host/#{SECRET}",
    ],
)
def test_a_url_that_cannot_be_is_refused_without_repeating_it(url: str):
    with pytest.raises(ValueError, match=r"^host is not like https://") as raised:
        checked_url(url, "host")

    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "checked", "place"),
    [
        ("https://Host.example/", "https://Host.example", "host.example"),
        ("http://localhost:6006/a/b//", "http://localhost:6006/a/b", "localhost:6006/a/b"),
        ("http://[::1]:4318", "http://[::1]:4318", "[::1]:4318"),
    ],
)
def test_a_url_has_no_slash_at_its_end(url: str, checked: str, place: str):
    assert checked_url(url, "host") == checked
    assert address_of(checked) == place


async def test_nothing_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "lib")

    await failure(Response(status=500, body=SECRET.encode()), body={"comment": SECRET})

    assert caplog.records == []
