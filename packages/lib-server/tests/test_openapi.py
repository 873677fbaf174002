"""The document is made from the route table, and so says what there is."""

import inspect
import json
import re

from click.testing import CliRunner
from server_kit import echo_agent, serving

from lib_server import Server
from lib_server.a2a import A2AConfig
from lib_server.bodies import Empty
from lib_server.cli import main
from lib_server.problems import KINDS
from lib_server.routes import ROUTES

READ_BY_HANDLERS = {
    "/a2a": ["application/json"],
    "/mcp": ["application/json"],
    "/v1/blobs": ["*/*"],
}


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    document = Server(echo_agent()).openapi()

    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert described == {(route.method, re.sub(r":\w+}", "}", route.path)) for route in ROUTES}
    ids = [
        each["operationId"] for methods in document["paths"].values() for each in methods.values()
    ]
    assert len(set(ids)) == len(ids)


def test_every_reference_leads_somewhere() -> None:
    document = Server(echo_agent()).openapi()

    text = json.dumps(document)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert references <= set(document["components"]["schemas"])


def test_every_constraint_is_one_of_json_schema() -> None:
    document = Server(echo_agent()).openapi()

    of_pydantic = {"ge", "gt", "le", "lt", "min_length", "max_length", "multiple_of"}
    assert not of_pydantic & set(re.findall(r'"(\w+)":', json.dumps(document)))


def test_every_route_reads_the_parameters_that_its_handler_takes() -> None:
    for route in ROUTES:
        taken = inspect.get_annotations(route.handler)["call"]
        assert taken.startswith(f"Call[{(route.query or Empty).__name__}, "), route.path


def test_every_problem_of_a_route_is_described() -> None:
    for route in ROUTES:
        assert set(route.problems) <= set(KINDS), route.path


def test_a_body_that_its_handler_reads_has_its_media_type() -> None:
    paths = Server(echo_agent(), a2a=A2AConfig()).openapi()["paths"]

    types = {path: [*paths[path]["post"]["requestBody"]["content"]] for path in READ_BY_HANDLERS}
    assert types == READ_BY_HANDLERS


async def test_the_document_is_served_and_printed() -> None:
    async with serving(Server(echo_agent())) as up:
        served = (await up.client.get("/v1/openapi.json")).json()

    assert json.loads(CliRunner().invoke(main, ["openapi"]).stdout) == served
