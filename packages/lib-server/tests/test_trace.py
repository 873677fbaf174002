"""The trace of a run over HTTP: as data, as a page, of one's own tenant."""

from server_kit import OneKey, as_, echo_agent, serving

from lib_server import Server


async def test_a_trace_is_data_or_a_page() -> None:
    async with serving(Server(echo_agent(name="clerk"))) as up:
        run_id = (await up.client.post("/v1/runs", json={"input": "hello"})).json()["id"]
        await up.client.get(f"/v1/runs/{run_id}/result?wait_s=60")
        path = f"/v1/runs/{run_id}/trace"
        data = await up.client.get(path)
        page = await up.client.get(path, headers={"accept": "text/html"})
        missing = await up.client.get("/v1/runs/nothing/trace")

    spans = data.json()["spans"]
    assert [each["kind"] for each in spans] == ["agent", "llm"]
    assert spans[0]["parent"] == -1
    assert spans[0]["run"] == run_id
    assert "You wrote: hello" in spans[0]["output"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-disposition"] == 'attachment; filename="trace.html"'
    assert "Content-Security-Policy" in page.text
    assert (missing.status_code, missing.json()["code"]) == (404, "run_not_found")


async def test_a_trace_of_another_tenant_is_like_none() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        started = await up.client.post("/v1/runs", json={"input": "x"}, headers=as_("acme"))
        path = f"/v1/runs/{started.json()['id']}/trace"
        own = await up.client.get(path, headers=as_("acme"))
        foreign = await up.client.get(path, headers=as_("umbrella"))

    assert own.status_code == 200
    assert (foreign.status_code, foreign.json()["code"]) == (404, "run_not_found")
