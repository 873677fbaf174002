"""The page `/docs`: the OpenAPI document for people, in one file without scripts or requests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
nav ul { columns: 18rem; list-style: none; padding: 0; }
article { border-top: 1px solid var(--line); padding: .5rem 0 1rem; }
h2 { margin-top: 3rem; } h3 { font-size: 1rem; } h4 { margin: 1rem 0 .25rem; }
.method { background: var(--soft); border-radius: .25rem; font-weight: 700; padding: 0 .4rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left;
  vertical-align: top; }
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page: its own style, and nothing else."""

_ROW = Sequence[str]


def docs_page(document: Mapping[str, Any], *, document_url: str) -> str:
    """Return the page of an OpenAPI document.

    Args:
        document: as `lib_server.openapi` makes it.
        document_url: where it is served.
    """
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    schemas = document["components"]["schemas"]
    title = f"{document['info']['title']} {document['info']['version']}"
    contents = [
        f"<h1>{escape(title)}</h1>",
        f'<p>For programs: <a href="{escape(document_url)}">the OpenAPI document</a>.</p>',
        _navigation(by_tag),
    ]
    for tag, operations in by_tag.items():
        contents.append(f'<h2 id="{_anchor(tag)}">{escape(tag.capitalize())}</h2>')
        contents += [_operation(*each) for each in operations]
    contents.append('<h2 id="schemas">Bodies</h2>')
    contents += [_schema(name, schema) for name, schema in sorted(schemas.items())]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{''.join(contents)}</main></body></html>"
    )


def _navigation(by_tag: Mapping[str, Any]) -> str:
    links = [f'<li><a href="#{_anchor(tag)}">{escape(tag.capitalize())}</a></li>' for tag in by_tag]
    links.append('<li><a href="#schemas">Bodies</a></li>')
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    scope = operation.get("x-scope")
    needs = f"Needs the scope <code>{escape(scope)}</code>." if scope else "Needs no credentials."
    parts = [
        f'<article id="{_anchor(operation["operationId"])}">',
        f'<h3><span class="method">{method}</span> <code>{escape(path)}</code></h3>',
        f"<p>{escape(operation['summary'])}. {needs}</p>",
    ]
    if operation["parameters"]:
        rows = [_parameter(each) for each in operation["parameters"]]
        parts.append(_table("Parameters", ("name", "in", "type", "description"), rows))
    if "requestBody" in operation:
        contents = operation["requestBody"]["content"]
        rows = [
            (f"<code>{escape(kind)}</code>", _type(of["schema"])) for kind, of in contents.items()
        ]
        parts.append(_table("Body", ("content", "type"), rows))
    rows = [_response(status, of) for status, of in operation["responses"].items()]
    parts.append(_table("Answers", ("status", "meaning", "content"), rows))
    if events := operation.get("x-sse-events"):
        rows = [(f"<code>{escape(name)}</code>", escape(line)) for name, line in events.items()]
        parts.append(_table("Events beside those of the log", ("event", "meaning"), rows))
    return "".join([*parts, "</article>"])


def _parameter(parameter: Mapping[str, Any]) -> _ROW:
    schema = parameter["schema"]
    name = f"<code>{escape(parameter['name'])}</code>"
    described = parameter.get("description") or schema.get("description", "")
    return name, escape(parameter["in"]), _type(schema), escape(described)


def _response(status: str, response: Mapping[str, Any]) -> _ROW:
    kinds = [
        f"<code>{escape(kind)}</code> {_type(of['schema'])}"
        for kind, of in response.get("content", {}).items()
    ]
    return escape(status), escape(response["description"]), "<br>".join(kinds)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(of),
            "yes" if field in required else "",
            escape(of.get("description", "")),
        )
        for field, of in schema.get("properties", {}).items()
    ]
    described = f"<p>{escape(schema.get('description', ''))}</p>"
    fields = _table("Fields", ("name", "type", "required", "description"), rows)
    return f'<article id="{_anchor(name)}"><h3>{escape(name)}</h3>{described}{fields}</article>'


def _table(caption: str, heads: Iterable[str], rows: Iterable[_ROW]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<h4>{escape(caption)}</h4><div class="table" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in words, with links to the bodies that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_anchor(name)}">{escape(name)}</a>'
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(str(each))}</code>" for each in values)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(schema.get("format") or schema.get("type", "any"))


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))
