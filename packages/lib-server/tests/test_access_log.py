"""The access log: a line for each answer, and nothing of what callers send in it."""

import logging

import httpx2
import pytest
from server_kit import OneKey, as_, echo_agent, serving

from lib_server import Server

SECRET = "s3cr3t-9f8e7d"


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "lib_server.access"]


async def test_a_line_says_what_was_answered_to_which_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        caplog.clear()
        headers = as_("acme") | {"x-request-id": "request-0001"}
        await up.client.get("/v1/runs/nothing", headers=headers)

    [record] = lines(caplog)
    facts = vars(record)
    assert record.getMessage() == (
        "method=GET route=/v1/runs/{run_id} status=404 problem=run_not_found "
        f"seconds={facts['seconds']} request_id=request-0001 tenant=acme key_id=acme"
    )
    assert (facts["status"], facts["tenant"], facts["problem"]) == (404, "acme", "run_not_found")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", f"/v1/runs?cursor={SECRET}"),
        ("GET", f"/v1/{SECRET}"),
        ("GET", f"/v1/runs/{SECRET}%0d%0astatus=200"),
        ("GET", f"/{SECRET}%00%1b[31m/%e2%80%ae%ff"),
        ("POST", f"/v1/runs/{SECRET}/cancel"),
        ("DELETE", f"/v1/runs?token={SECRET}"),
    ],
)
async def test_nothing_of_what_a_caller_sends_is_logged(
    method: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lib_server")
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        url = httpx2.URL(f"http://127.0.0.1:{up.port}").copy_with(raw_path=target.encode())
        for authorization in (f"Bearer {SECRET}", "Bearer acme", f"Basic {SECRET}"):
            headers = {
                "authorization": authorization,
                "user-agent": SECRET,
                "referer": f"http://127.0.0.1/{SECRET}",
                "cookie": f"session={SECRET}",
                "x-request-id": f"bad id {SECRET}",
            }
            await up.client.request(method, url, headers=headers, json={"reason": SECRET})

    own = [record for record in caplog.records if record.name.startswith("lib_server")]
    assert len(lines(caplog)) >= 3
    for record in own:
        assert SECRET not in record.getMessage() + repr(vars(record))
        assert record.getMessage().isprintable()
