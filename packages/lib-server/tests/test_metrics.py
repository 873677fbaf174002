"""`/metrics`: counts without ids, as Prometheus reads them."""

import re

from server_kit import OneKey, all_of, as_, echo_agent, serving

from lib_server import FirstOf, Limits, Principal, Quota, Rate, Server, Unauthenticated
from lib_server.metrics import Counter, Histogram, Reading, exposition

_SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (?P<value>\S+)'
)


def read(text: str) -> dict[str, float]:
    """Return samples by name and labels; each line must be as the format has it."""
    samples: dict[str, float] = {}
    described: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            described.add(line.split()[2])
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        base = re.sub("_(bucket|sum|count)$", "", found["name"])
        assert described & {found["name"], base}, line
        name = found["name"] + (f"{{{found['labels']}}}" if found["labels"] else "")
        assert name not in samples
        samples[name] = float(found["value"])
    return samples


class Operator(OneKey):
    """Knows an operator's key beside those of tenants."""

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization == "Bearer operator":
            return Principal(key_id="operator", scopes=frozenset({"admin"}))
        return await super().authenticate(authorization)


def test_the_format_is_that_of_prometheus() -> None:
    counter = Counter("hits_total", "Hits.", ("what",))
    counter.add('a "quoted"\nback\\slash')
    counter.add("b", count=2)
    histogram = Histogram("waits_seconds", "Waits.", (0.1, 1), ("kind",))
    for amount in (0.05, 0.1, 0.5, 7):
        histogram.observe(amount, "x")
    reading = Reading("open", "Open.", "gauge", lambda: {"": 3})

    assert exposition([counter, histogram, reading]) == (
        "# HELP hits_total Hits.\n"
        "# TYPE hits_total counter\n"
        'hits_total{what="a \\"quoted\\"\\nback\\\\slash"} 1\n'
        'hits_total{what="b"} 2\n'
        "# HELP waits_seconds Waits.\n"
        "# TYPE waits_seconds histogram\n"
        'waits_seconds_bucket{kind="x",le="0.1"} 2\n'
        'waits_seconds_bucket{kind="x",le="1"} 3\n'
        'waits_seconds_bucket{kind="x",le="+Inf"} 4\n'
        'waits_seconds_sum{kind="x"} 7.65\n'
        'waits_seconds_count{kind="x"} 4\n'
        "# HELP open Open.\n"
        "# TYPE open gauge\n"
        "open 3\n"
    )


async def test_requests_runs_and_streams_are_counted_by_routes_and_never_by_ids() -> None:
    async with serving(Server(echo_agent(name="echo"))) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        sent = await all_of(up.client, f"/v1/runs/{run['id']}/events")
        await up.client.get(f"/v1/runs/{run['id']}")
        await up.client.get("/v1/runs/nothing")
        await up.client.get("/v1/secret-path?token=secret")
        await up.client.request("PROPFIND", "/v1/runs")
        answer = await up.client.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert run["id"] not in answer.text
    assert "secret" not in answer.text
    found = read(answer.text)
    assert found['http_requests_total{method="POST",route="/v1/runs",status="201"}'] == 1
    assert found['http_requests_total{method="GET",route="/v1/runs/{run_id}",status="200"}'] == 1
    assert found['http_requests_total{method="GET",route="/v1/runs/{run_id}",status="404"}'] == 1
    assert found['http_requests_total{method="GET",route="-",status="404"}'] == 1
    assert found['http_requests_total{method="other",route="-",status="405"}'] == 1
    seconds = 'http_request_seconds_count{method="GET",route="/v1/runs/{run_id}"}'
    assert found[seconds] == 2
    assert found["open_streams"] == 0
    assert found["sse_events_total"] == sum(bool(event.id) for event in sent) + sum(
        event.event == "reply.delta" for event in sent
    )
    assert found['run_seconds_count{agent="echo",outcome="COMPLETED"}'] == 1
    assert found["ttft_seconds_count"] == 1
    assert found["open_runs"] == 0


async def test_refusals_are_counted_by_their_reasons() -> None:
    limits = Limits(tenant=Quota(requests=Rate(1, 3600)), tenants={"": Quota()})
    server = Server(echo_agent(), auth=FirstOf(Operator()), limits=limits)
    async with serving(server) as up:
        for headers in (as_("acme"), as_("acme"), as_("nothing"), {}):
            await up.client.get("/v1/runs", headers=headers)
        tenant = await up.client.get("/metrics", headers=as_("umbrella"))
        none = await up.client.get("/metrics")
        answer = await up.client.get("/metrics", headers=as_("operator"))

    found = read(answer.text)
    assert (tenant.status_code, none.status_code) == (403, 401)
    assert found['rate_limited_total{code="rate_limited"}'] == 1
    assert found['authentication_failures_total{reason="unknown"}'] == 1
    assert found['authentication_failures_total{reason="missing"}'] == 2
    assert found['http_requests_total{method="GET",route="-",status="401"}'] == 3
    assert "# TYPE jwks_refresh_total counter" in answer.text


async def test_the_metrics_of_all_tenants_are_not_for_the_administrator_of_one() -> None:
    class Administrators(OneKey):
        async def authenticate(self, authorization: str | None) -> Principal:
            if authorization is None:
                raise Unauthenticated("missing")
            return Principal(key_id="a", tenant="acme", scopes=frozenset({"admin"}))

    async with serving(Server(echo_agent(), auth=Administrators())) as up:
        answer = await up.client.get("/metrics", headers=as_("acme"))

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
