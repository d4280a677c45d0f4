"""aiohttp's own server: requests begin and end at the application's handler."""

import functools
from typing import Any, List, Optional

from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import OFF, recorder
from relive_recorder.servers.handling import Handling, begin, scrubbed

__all__ = ["install"]


def install() -> None:
    """Change the class ``Application``; subapplications are handled within their parent's request."""
    when_imported("aiohttp.web_app", _change)


def _change(module: Any) -> None:
    import importlib

    handle = module.Application._handle
    is_answer = importlib.import_module("aiohttp.web_exceptions").HTTPException

    @functools.wraps(handle)
    async def handle_recorded(self: Any, request: Any) -> Any:
        handling = attempt(_begin, request) if recorder.mode() != OFF else None
        if handling is None:
            return await handle(self, request)
        try:
            answer = await handle(self, request)
        except is_answer as raised:  # an answer, although it is raised
            attempt(_end, handling, request, raised)
            raise
        except BaseException as error:
            attempt(_note_body, handling, request)
            attempt(handling.failed, error)
            raise
        else:
            attempt(_end, handling, request, answer)
            return answer
        finally:
            handling.ended()

    module.Application._handle = handle_recorded


def _begin(request: Any) -> Optional[Handling]:
    peer: List[Any] = []
    transport = request.transport
    if transport is not None:
        named = transport.get_extra_info("peername")
        peer = list(named)[:2] if type(named) is tuple else []
    return begin("aiohttp", request.method, request.raw_path, peer, scrubbed(request.headers.items()))


def _note_body(handling: Handling, request: Any) -> None:
    """aiohttp holds a body that was read as a whole; one that was read in pieces is gone."""
    body = getattr(request, "_read_bytes", None)
    if type(body) is bytes:
        handling.received(body, is_last=True)


def _end(handling: Handling, request: Any, answer: Any) -> None:
    _note_body(handling, request)
    handling.status = answer.status
    handling.headers = scrubbed((str(name), str(value)) for name, value in answer.headers.items())
    body = getattr(answer, "body", None)
    if type(body) is bytes:
        handling.sent(body)
