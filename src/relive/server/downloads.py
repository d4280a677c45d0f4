"""``GET /exports/ID/file``: a kept export, to who holds a signed address; in parts, so that what broke off goes on where it ended.

The router needs ``app.state.links`` (``SignedUrls``) and ``app.state.export_store`` (``ExportStore``).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from relive.errors import ObjectCorrupt, RangeUnsatisfiable
from relive.server.audit import note_for_audit
from relive.server.errors import ERROR_RESPONSES, answer_to
from relive.server.export_shelf import ExportStore, KeptExport
from relive.server.ranges import ByteRange, wanted
from relive.server.signed_urls import SignedUrls

__all__ = ["router"]

router = APIRouter(tags=["exports"], responses=ERROR_RESPONSES)
_CHUNK = 256 << 10  # [bytes]
_TYPE = "application/octet-stream"


@router.head("/exports/{export}/file", response_class=Response, include_in_schema=False)
@router.get(
    "/exports/{export}/file",
    response_class=Response,
    operation_id="download_export",
    openapi_extra={
        "parameters": [
            {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}
            for name in ("expires", "link", "signature")
        ]
    },
    responses={
        200: {
            "content": {_TYPE: {"schema": {"type": "string", "format": "binary"}}},
            "description": "The file",
        },
        206: {"description": "The part that Range asks for"},
    },
)
def download(export: str, request: Request) -> Response:
    """Fetch a kept export at its signed address; no token is needed, Range and If-Range are understood"""
    links: SignedUrls = request.app.state.links
    export_store: ExportStore = request.app.state.export_store
    link = links.check(export, request.scope["query_string"])
    note_for_audit(request.scope, who=f"signed address {link.link} of {link.asked_by}", target=export)
    if request.method == "HEAD":
        kept = export_store.get(export)
        return Response(headers=_headers(kept, ByteRange(0, kept.bytes)), media_type=_TYPE)
    kept, descriptor = export_store.open(export)
    try:
        asked = wanted(
            request.headers.get("range"), request.headers.get("if-range"), size=kept.bytes, etag=kept.etag
        )
    except RangeUnsatisfiable as error:
        os.close(descriptor)
        return answer_to(error, headers={"Content-Range": f"bytes */{kept.bytes}", "ETag": kept.etag})
    span = asked or ByteRange(0, kept.bytes)
    headers = _headers(kept, span)
    if asked is not None:
        headers["Content-Range"] = f"bytes {span.begin}-{span.end - 1}/{kept.bytes}"
    return _Part(descriptor, span, 200 if asked is None else 206, headers)


def _headers(kept: KeptExport, span: ByteRange) -> dict[str, str]:
    return {
        "Content-Length": str(span.end - span.begin),
        "Accept-Ranges": "bytes",
        "ETag": kept.etag,
        "Content-Disposition": f'attachment; filename="{kept.name}"',  # the name needs no quoting, see ``export_store``
        # The address opens the file, so neither a cache nor a page may keep or pass it on.
        "Cache-Control": "private, no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


class _Part(StreamingResponse):
    """Bytes of an open file, which it closes, also when the client goes away or nothing was sent."""

    def __init__(self, descriptor: int, span: ByteRange, status: int, headers: dict[str, str]) -> None:
        super().__init__(_chunks(descriptor, span), status, headers, _TYPE)
        self._descriptor = descriptor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)


async def _chunks(descriptor: int, span: ByteRange) -> AsyncIterator[bytes]:
    begin, end = span
    while begin < end:
        chunk = await anyio.to_thread.run_sync(os.pread, descriptor, min(_CHUNK, end - begin), begin)
        if not chunk:  # the connection is cut: the client sees that bytes are missing
            raise ObjectCorrupt(
                "an export became shorter while it was sent", remedy="export the commit again"
            )
        begin += len(chunk)
        yield chunk
