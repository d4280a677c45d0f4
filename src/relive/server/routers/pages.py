"""The server's own page on what can be asked: one HTML file, no script, nothing loaded from anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from relive.page import page, table

__all__ = ["api_page", "router"]

router = APIRouter()
_ALONE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = """
pre, code { font: 13px/1.45 ui-monospace, monospace; } details { border-bottom: 1px solid var(--line); padding: .3rem 0; }
summary { cursor: pointer; } .verb { display: inline-block; width: 4.5rem; font-weight: 600; } pre { overflow-x: auto;
  background: var(--shade); padding: .5rem; } td { vertical-align: top; }
"""


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """What can be asked of this server."""
    return HTMLResponse(api_page(request.app.openapi()), headers=_ALONE)


def api_page(schema: dict[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = schema["info"]
    body = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        *(f"<p>{escape(part)}</p>" for part in str(info.get("description", "")).split("\n\n")),
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>. To try: '
        '<code>curl -H "Authorization: Bearer rlv_..." ADDRESS/incidents</code></p>',
    ]
    tag = None
    for path, method, operation in _operations(schema):
        tags = operation.get("tags") or ["other"]
        if tags[0] != tag:
            tag = tags[0]
            body.append(f"<h2>{escape(str(tag))}</h2>")
        body.append(_operation(path, method, operation))
    body.append("<h2>schemas</h2>")
    for name, one in sorted(schema.get("components", {}).get("schemas", {}).items()):
        body.append(
            f'<details id="{escape(name, quote=True)}"><summary>{escape(name)}</summary>'
            f"<pre>{escape(json.dumps(one, indent=1, ensure_ascii=False))}</pre></details>"
        )
    return page("Relive: the API", body, style=_STYLE, width=1000)


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        [
            f"<code>{escape(one['name'])}</code>",
            escape(one["in"]),
            "yes" if one.get("required") else "",
            escape(str(one.get("description") or one.get("schema", {}).get("description") or "")),
        ]
        for one in operation.get("parameters", ())
    ]
    parts = [f"<p>{escape(str(operation.get('description') or ''))}</p>"]
    if rows:
        parts.append(table(["name", "in", "required", ""], rows, numbers=()))
    for what, contents in _contents(operation):
        parts.append(f"<p>{escape(what)}: {contents}</p>")
    return (
        f'<details><summary><span class="verb">{escape(method.upper())}</span><code>{escape(path)}</code></summary>'
        f"{''.join(parts)}</details>"
    )


def _contents(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a body and each answer is, with links to the schemas."""
    asked = operation.get("requestBody")
    if asked is not None:
        yield "body", _kinds(asked)
    for status, answer in operation.get("responses", {}).items():
        kinds = _kinds(answer)
        yield f"answer {status}", kinds or escape(str(answer.get("description", "")))


def _kinds(of: dict[str, Any]) -> str:
    shown = []
    for kind, content in of.get("content", {}).items():
        name = str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]
        link = f' <a href="#{escape(name, quote=True)}">{escape(name)}</a>' if name else ""
        shown.append(f"<code>{escape(kind)}</code>{link}")
    return ", ".join(shown)
