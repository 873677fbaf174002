"""Functions of the specification have its parameters, in their order, and its defaults."""

from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from inspect import Parameter, signature

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

# A default written `...` is left open by the specification.
CALLABLES = {
    "lib.vector": """
        InMemoryVectorStore(dimension=None, metric="cosine")
        RelationalVectorStore(dsn=None, *, pool=None, dimension, metric="cosine", table="lib_vectors", hnsw=True, ef_search=100, text_search_config="english")
        ServerVectorStoreA(*, dimension, collection="lib_vectors", metric="cosine", client=None)
        FileVectorStore(path=":memory:", *, dimension, metric="cosine", table="lib_vectors")
        EmbeddedVectorStoreA(uri="./lancedb", *, dimension, metric="cosine", table="lib_vectors", storage_options=None, initial_batch=64)
        EmbeddedVectorStoreB(*, dimension, metric="cosine", path=None, host=None, port=8000, client=None, prefix="lib")
        HostedVectorStore(*, dimension, api_key=None, index_name=None, index_host=None, metric="cosine", create=False, cloud=..., region=..., consistent=True, consistency_timeout_s=30.0, control_host=None, client=None)
        HostedVectorStore.setup()
        InMemoryVectorStore.query_hybrid(vector, text, k=5, *, filter=None, namespace=None)
        RelationalVectorStore.query_hybrid(vector, text, k=5, *, filter=None, namespace=None)
        FileVectorStore.query_hybrid(vector, text, k=5, *, filter=None, namespace=None)
        EmbeddingIndex(store, embedder, *, namespace=None, max_overfetch=1000, hybrid=False)
        EmbeddingIndex.search(query, k=5, *, filter=None, hybrid=None)
        TenantVectorStore(store, tenant, *, namespace_prefix="")
        TenantVectorStore.sibling(suffix)
        TenantVectorStore.erase()
        Filter.parse(spec)
        F(field)
        RerankingIndex(index, reranker, *, fetch_k=30)
        LLMReranker(client, *, model=None, max_chars=800)
        RerankerA(api_key=None, *, model="rerank-v4.0-pro", base_url=..., timeout_s=20.0, transport=None)
        RerankerB(api_key=None, *, model="rerank-2.5", base_url=..., timeout_s=20.0, transport=None)
    """,
    "lib.observe": """
        Observer(engine, sinks, *, capture_content=False, content_limit=4000, sample=1.0, tenant=None, settle_s=0.2, flush_interval_s=None, sink_timeout_s=30.0, max_tracked=10000, group="lib.observe")
        Observer.drain(timeout_s=10.0)
        Observer.export_trace(root_run_id, *, final=True)
        Observer.flush_open()
        Observer.backfill(*, since=None, limit=None)
        spans_from_events(events, *, parent_events=None, capture_content=False, content_limit=4000)
        InMemorySink()
        ConsoleSink(out=None)
        CallableSink(export)
        OTelSink(exporter=None, *, dialect=None, service_name="lib", resource_attributes=None, batch_size=512)
        TraceSinkA(public_key, secret_key, host=..., *, environment=None, tags=(), http=None)
        TraceSinkB(api_key, project=None, endpoint=..., *, provider=None, api_url=..., http=None)
        TraceSinkC(endpoint=..., project=None, api_key=None, http=None)
        TraceSink.export(spans)
        OTelSink.score(trace_id, scores, *, span_id=None)
        TraceSinkA.score(trace_id, scores, *, span_id=None)
        TraceSinkB.score(trace_id, scores, *, span_id=None)
        TraceSinkC.score(trace_id, scores, *, span_id=None)
    """,
    "lib.tools.builtin": """
        http_fetch_tool(policy=None, *, fetcher=None, max_chars=20000, name="http_fetch")
        read_file_tool(root, *, name="read_file")
        list_files_tool(root, *, name="list_files")
        web_search_tool(provider, *, max_results=5, name="web_search")
        SafeFetcher(policy=None, *, resolver=None, transport=None, verify=True)
        FetchPolicy.strict(allowed_hosts)
        FileAccess.read(path, *, offset=0, limit=None)
        MetaSearchProvider(base_url, *, categories=None, language=None, safesearch=None, timeout_s=10.0, transport=None)
        SearchApiProvider(api_key=None, *, base_url=..., safesearch="moderate", country=None, timeout_s=10.0, transport=None)
    """,
}
DATACLASSES = {
    "lib.vector": """
        Record(id, vector, text="", meta=...)
        Match(id, score, text="", meta=..., vector=None)
    """,
    "lib.observe": """
        Span(trace_id, span_id, parent_id, name, kind, start, end, status="ok", status_message=None, attributes=..., events=..., run_id="", tenant=None, user=None, input=None, output=None)
    """,
    "lib.tools.builtin": """
        FetchPolicy(allowed_hosts=(), denied_hosts=(), allowed_ports=(80, 443), allow_http=True, max_redirects=5, max_bytes=1000000, timeout_s=20.0, connect_timeout_s=5.0, content_types=..., user_agent="lib-http-fetch/1.0", allow_private_networks=False, extra=...)
        FileAccess(root, max_bytes=200000, allow_hidden=False, deny=...)
    """,
}


def test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification() -> (
    None
):
    assert list(differences(CALLABLES)) == []


def test_every_dataclass_has_the_fields_and_defaults_of_the_specification() -> None:
    assert list(differences(DATACLASSES)) == []


def differences(tables: dict[str, str]) -> list[str]:
    """Return each difference between what the tables name and what is there."""
    lines = [
        (package, line)
        for package, table in tables.items()
        for line in filter(None, map(str.strip, table.splitlines()))
    ]
    return [fault for package, line in lines for fault in faults(package, line)]


def faults(package: str, line: str) -> Iterator[str]:
    """Yield what differs from a line; parameters beyond its own need a default."""
    name, _, parameters = line.partition("(")
    expected = signature(eval(f"lambda {parameters.removesuffix(')')}: 0")).parameters
    found = signature(reduce(getattr, name.split("."), import_module(package))).parameters
    actual = {name: each for name, each in found.items() if name != "self"}
    positional = [name for name, each in expected.items() if each.kind in BY_POSITION]
    taken = [name for name, each in actual.items() if each.kind in BY_POSITION]
    if taken[: len(positional)] != positional:
        yield f"{name} takes {taken} by position"
    for key, each in expected.items():
        if key not in actual:
            yield f"{name} has no {key}"
        elif each.default not in (..., actual[key].default):
            yield f"{name} has {actual[key]}"
    for key in actual.keys() - expected.keys():
        if actual[key].kind not in REST and actual[key].default is Parameter.empty:
            yield f"{name} requires {key}"
