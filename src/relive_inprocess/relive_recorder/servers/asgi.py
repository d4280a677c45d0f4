"""ASGI applications, under whatever server.

The application is wrapped where the server keeps it; Starlette, under a server that is not known here, where it is called.
"""

import functools
from typing import Any, Awaitable, Callable, Dict, Optional, Tuple

from relive_recorder import context, quick
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import recorder
from relive_recorder.servers.handling import Handling, are_pairs, begin, handle_in_c, target_of

__all__ = ["install"]

_KINDS = frozenset(("http", "websocket"))
_CO_COROUTINE = 0x80  # of ``inspect``
Scope = Dict[str, Any]
Receive = Callable[[], Awaitable[Dict[str, Any]]]
Send = Callable[[Dict[str, Any]], Awaitable[None]]


def install() -> None:
    """uvicorn (also as gunicorn's worker), hypercorn, daphne, gunicorn; Starlette and FastAPI under any other server."""
    if handle_in_c():
        quick.module.asgi(RecordedAsgi, _received, _note_sent, _awaited)
    when_imported("uvicorn.config", _uvicorn)
    when_imported("hypercorn.app_wrappers", _hypercorn)
    when_imported("daphne.server", _daphne)
    when_imported("gunicorn.workers.gasgi", _gunicorn)
    when_imported("starlette.applications", _starlette)
    when_imported("starlette.middleware.exceptions", _starlette_exceptions)


def _uvicorn(module: Any) -> None:
    load = module.Config.load

    @functools.wraps(load)
    def load_recorded(self: Any) -> None:
        load(self)
        attempt(_wrap_attribute, self, "loaded_app")

    module.Config.load = load_recorded


def _hypercorn(module: Any) -> None:
    make = module.ASGIWrapper.__init__

    @functools.wraps(make)
    def make_recorded(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        attempt(_wrap_attribute, self, "app")

    module.ASGIWrapper.__init__ = make_recorded


def _daphne(module: Any) -> None:
    make = module.Server.__init__

    @functools.wraps(make)
    def make_recorded(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        attempt(_wrap_attribute, self, "application")

    module.Server.__init__ = make_recorded


def _gunicorn(module: Any) -> None:
    load = module.ASGIWorker.load_wsgi

    @functools.wraps(load)
    def load_recorded(self: Any) -> None:
        load(self)
        attempt(_wrap_attribute, self, "asgi")

    module.ASGIWorker.load_wsgi = load_recorded


def _wrap_attribute(holder: Any, name: str) -> None:
    setattr(holder, name, RecordedAsgi(getattr(holder, name)))


def _starlette(module: Any) -> None:
    """Under servers that are not known here: requests that nobody has begun with yet begin at the application."""
    call = module.Starlette.__call__

    @functools.wraps(call)
    async def call_recorded(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        if context.here().number:  # as under every server that is known
            await call(self, scope, receive, send)
        else:
            await RecordedAsgi(functools.partial(call, self))(scope, receive, send)

    module.Starlette.__call__ = call_recorded


def _starlette_exceptions(module: Any) -> None:
    """The last place before a 500 is made of an exception: no handler of the service's wanted it."""
    call = module.ExceptionMiddleware.__call__

    @functools.wraps(call)
    async def call_watched(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await call(self, scope, receive, send)
        except Exception as error:
            attempt(_failing, error)
            raise

    module.ExceptionMiddleware.__call__ = call_watched


def _failing(error: BaseException) -> None:
    handling = context.here().handling
    if handling is not None:
        handling.failed(error)


class RecordedAsgi:
    """An application with the recorder before it; everything else of it is as it was, also what ``__call__`` is said to be."""

    def __init__(self, app: Any) -> None:
        self.__wrapped__ = app
        if _is_coroutine_method(getattr(app, "__call__", None)):  # noqa: B004 - not whether it can be called
            # Only who asks for it by name finds this; to call an object Python looks into its class.
            self.__dict__["__call__"] = self._answer

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        handling = None if context.here().number else attempt(_begin, scope)
        if handling is None:
            await self.__wrapped__(scope, receive, send)
            return
        watch = _Watch(handling, receive, send)
        try:
            await self.__wrapped__(scope, watch.receive, watch.send)
        except BaseException as error:
            attempt(handling.failed, error)
            raise
        finally:
            handling.ended()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _is_coroutine_method(call: Any) -> bool:
    """As ``inspect.iscoroutinefunction`` of a method, without that module, which takes milliseconds."""
    flags = getattr(getattr(getattr(call, "__func__", None), "__code__", None), "co_flags", 0)
    return bool(flags & _CO_COROUTINE)


def _begin(scope: Scope) -> Optional[Handling]:
    kind = scope.get("type")
    if kind not in _KINDS:
        return None
    writer = recorder.quick
    handling: Optional[Handling] = writer.arrived(scope) if writer is not None and kind == "http" else None
    if handling is None:
        handling = begin("asgi", *_asked(scope))
    if handling is not None:
        handling.routed = scope
    return handling


def _asked(scope: Scope) -> Tuple[Any, ...]:
    """What ``begin`` wants to know, from ``method`` on."""
    path = scope.get("raw_path") or scope.get("path", "").encode("utf-8", "surrogateescape")
    query = scope.get("query_string") or b""
    method = scope.get("method", "") if scope["type"] == "http" else "WEBSOCKET"
    peer = list(scope.get("client") or [])[:2]
    return method, target_of(path, query), peer, [], tuple(scope.get("headers", ()))


class _Watch:
    """What goes through ``receive`` and ``send`` of one request. Of a websocket only the number of messages is told."""

    __slots__ = ("_handling", "_receive", "_send")

    def __init__(self, handling: Handling, receive: Receive, send: Send) -> None:
        self._handling = handling
        self._receive = receive
        self._send = send

    def receive(self) -> Awaitable[Dict[str, Any]]:
        return _received(self._handling, self._receive)

    def send(self, message: Dict[str, Any]) -> Awaitable[None]:
        """No coroutine of its own, but the server's: one less for each message."""
        _note_sent(self._handling, message)
        return self._send(message)


async def _received(handling: Handling, receive: Receive) -> Dict[str, Any]:
    message = await receive()
    kind = message.get("type")
    if kind == "http.request":
        body = message.get("body")
        if body or handling.has_body:  # of an empty one nothing is told
            attempt(_note_body, handling, body or b"", not message.get("more_body", False))
    elif kind == "websocket.receive":
        attempt(handling.count, "messages_in")
    return message


def _note_body(handling: Handling, body: Any, is_last: bool) -> None:
    handling.received(bytes(body), is_last=is_last)


def _note_sent(handling: Handling, message: Dict[str, Any]) -> None:
    try:
        kind = message.get("type") if isinstance(message, dict) else None  # else the server will refuse it
        if kind == "http.response.body":
            body = message.get("body")
            if body and isinstance(body, (bytes, bytearray, memoryview)):  # else the server will refuse it
                handling.sent(bytes(body))
        elif kind == "http.response.start":
            _note_start(handling, message)
        elif kind == "websocket.send":
            handling.count("messages_out")
    except Exception as fault:
        recorder.switch_off(fault)


def _note_start(handling: Handling, message: Dict[str, Any]) -> None:
    try:
        handling.status = int(message["status"])
    except (KeyError, TypeError, ValueError, OverflowError):  # the server will refuse it
        return
    headers = message.get("headers", ())
    if are_pairs(headers):
        handling.raw_headers = tuple(headers)


async def _awaited(made: Awaitable[Any]) -> None:
    """For the part in C: of what an application returned that is no coroutine of Python's."""
    await made
