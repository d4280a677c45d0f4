"""WSGI applications (PEP 3333), under gunicorn, wsgiref, werkzeug, waitress and gevent's own server.

Flask and Django make an answer of an exception themselves: they are watched at that place.
"""

import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from relive_recorder import context, quick
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import OFF, recorder
from relive_recorder.servers.handling import Handling, are_pairs, begin, describe, handle_in_c

__all__ = ["install"]

Environ = Dict[str, Any]
_REMEMBERED = 256
_LONGEST_KEYS = 2048  # [characters] together


def install() -> None:
    """Wrap the application where each server keeps it (Django's runserver is wsgiref's)."""
    if handle_in_c():
        quick.module.wsgi(
            RecordedWsgi, describe, _header_name, _note_input, _note_start, _note_piece, _watch_answer, _leave
        )
    for name in ("gunicorn.workers.sync", "gunicorn.workers.gthread"):
        when_imported(name, _gunicorn)
    for name in ("gunicorn.workers.ggevent", "gunicorn.workers.geventlet"):
        when_imported(name, _gunicorn)
    when_imported("wsgiref.handlers", _wsgiref)
    when_imported("werkzeug.serving", _werkzeug)
    when_imported("waitress.server", _waitress)
    when_imported("gevent.pywsgi", _pywsgi)
    when_imported("flask.app", _flask)
    when_imported("django.core.handlers.exception", _django)


def _gunicorn(module: Any) -> None:
    """Its WSGI workers load the application in ``load_wsgi`` of their common base, which ASGI workers use as well."""
    for name in ("SyncWorker", "ThreadWorker", "GeventWorker", "EventletWorker"):
        worker = getattr(module, name, None)
        if worker is None or worker.__module__ != module.__name__ or "load_wsgi" in worker.__dict__:
            continue
        load = worker.load_wsgi

        def load_recorded(self: Any, _load: Callable[[Any], None] = load) -> None:
            _load(self)
            attempt(_wrap_attribute, self, "wsgi")

        worker.load_wsgi = functools.wraps(load)(load_recorded)


def _wsgiref(module: Any) -> None:
    run = module.BaseHandler.run

    @functools.wraps(run)
    def run_recorded(self: Any, application: Any) -> None:
        run(self, _wrapped(application))

    module.BaseHandler.run = run_recorded


def _werkzeug(module: Any) -> None:
    _wrap_after_init(module.BaseWSGIServer, "app")


def _waitress(module: Any) -> None:
    _wrap_after_init(module.BaseWSGIServer, "application")


def _pywsgi(module: Any) -> None:
    _wrap_after_init(module.WSGIServer, "application")


def _wrap_after_init(kind: Any, name: str) -> None:
    make = kind.__init__

    @functools.wraps(make)
    def make_recorded(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        attempt(_wrap_attribute, self, name)

    kind.__init__ = make_recorded


def _wrap_attribute(holder: Any, name: str) -> None:
    app = getattr(holder, name, None)
    if app is not None:  # as pywsgi has none where another handler is given, or it is set later
        setattr(holder, name, _wrapped(app))


def _wrapped(app: Any) -> Any:
    return app if type(app) is RecordedWsgi else RecordedWsgi(app)


def _flask(module: Any) -> None:
    handle = module.Flask.handle_exception

    @functools.wraps(handle)
    def handle_watched(self: Any, *given: Any, **named: Any) -> Any:
        attempt(_failing, given[-1] if given else named.get("e"))
        return handle(self, *given, **named)

    module.Flask.handle_exception = handle_watched


def _django(module: Any) -> None:
    respond = module.response_for_exception

    @functools.wraps(respond)
    def respond_watched(request: Any, exc: Any) -> Any:
        attempt(_failing_in_django, module, exc)
        return respond(request, exc)

    module.response_for_exception = respond_watched


# Exceptions that Django answers with 400, 403 or 404: no failures.
_ANSWERS = ("Http404", "PermissionDenied", "MultiPartParserError", "BadRequest", "SuspiciousOperation")


def _failing_in_django(module: Any, error: Any) -> None:
    answers = tuple(kind for kind in (getattr(module, name, None) for name in _ANSWERS) if kind is not None)
    if not isinstance(error, answers):
        _failing(error)


def _failing(error: Any) -> None:
    handling = context.here().handling
    if handling is not None and isinstance(error, BaseException):
        handling.failed(error)


class RecordedWsgi:
    """An application with the recorder before it; everything else of it is as it was."""

    def __init__(self, app: Any) -> None:
        self.__wrapped__ = app

    def __call__(self, environ: Environ, start_response: Any) -> Any:
        handling = attempt(_begin, environ) if recorder.mode() != OFF else None
        if handling is None:
            return self.__wrapped__(environ, start_response)
        try:
            answer = self.__wrapped__(environ, _Start(handling, start_response))
        except BaseException as error:
            attempt(handling.failed, error)
            handling.ended()
            raise
        return _watch_answer(handling, environ, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _leave(left: Handling) -> None:
    """Its server neither asked for the rest of its answer nor closed it, or did so in another thread: here it is over.

    Should the server ask for more of it, between pieces of the next one's answer, that is not recorded: the end says so.
    """
    if left.at_rest:
        left.tell("left", True)
    left.ended()
    context.leave_request()


def _begin(environ: Environ) -> Optional[Handling]:
    before = context.here().handling
    if before is not None and before.is_left:
        _leave(before)
    query = environ.get("QUERY_STRING")
    # What the client sent, where the server tells it; else the decoded path, which may look different.
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if not target:
        path = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
        target = f"{path}?{query}" if query else path
    method = environ.get("REQUEST_METHOD", "")
    handling = begin("wsgi", method, target, _peer(environ), [], _headers(environ))
    if handling is not None:
        _note_input(environ, handling)
    return handling


def _note_input(environ: Environ, handling: Handling) -> None:
    stream = environ.get("wsgi.input")
    if stream is not None and _may_have_body(environ):
        environ["wsgi.input"] = _Input(stream, handling, environ.get("CONTENT_LENGTH"))


def _peer(environ: Environ) -> List[Any]:
    host, port = environ.get("REMOTE_ADDR"), str(environ.get("REMOTE_PORT") or "")
    return [host or "", int(port) if port.isdigit() else 0]


def _may_have_body(environ: Environ) -> bool:
    return bool(environ.get("HTTP_TRANSFER_ENCODING")) or environ.get("CONTENT_LENGTH") not in (None, "", "0")


# By the names of an environment's variables: those that are headers. The requests of a server, and of a client, have the same ones.
_headers_among: Dict[Tuple[str, ...], Tuple[Tuple[str, str], ...]] = {}


def _headers(environ: Environ) -> Tuple[Tuple[str, str], ...]:
    keys = tuple(environ)
    known = _headers_among.get(keys)
    if known is None:
        known = tuple([(key, name) for key in keys for name in (_header_name(key),) if name])
        # Names of headers are what clients like.
        if len(_headers_among) < _REMEMBERED and sum(map(len, keys)) < _LONGEST_KEYS:
            _headers_among[keys] = known
    pairs = []
    for key, name in known:
        value = environ.get(key)
        if type(value) is str and (value or key[:5] == "HTTP_"):
            pairs.append((name, value))
    return tuple(pairs)


def _header_name(key: str) -> str:
    """Empty where it is none."""
    name = key[5:] if key.startswith("HTTP_") else key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else ""
    return name.replace("_", "-").lower()


class _Input:
    """The request's body, noted as it is read."""

    def __init__(self, stream: Any, handling: Handling, length: Any) -> None:
        self.__wrapped__ = stream
        self._handling = handling
        self._left = int(length) if type(length) is str and length.isdigit() else None

    def _noted(self, data: bytes) -> bytes:
        attempt(self._note, data)
        return data

    def _note(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
        self._handling.received(bytes(data), is_last=not data or (self._left is not None and self._left <= 0))

    def read(self, *given: Any) -> bytes:
        return self._noted(self.__wrapped__.read(*given))

    def readline(self, *given: Any) -> bytes:
        return self._noted(self.__wrapped__.readline(*given))

    def readlines(self, *given: Any) -> List[bytes]:
        lines: List[bytes] = self.__wrapped__.readlines(*given)
        self._noted(b"".join(lines))
        return lines

    def __iter__(self) -> Iterator[bytes]:
        for line in self.__wrapped__:
            yield self._noted(line)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        # Beyond PEP 3333; where a stream has them, werkzeug reads by these.
        if name == "readinto":
            return functools.partial(self._read_into, found)
        if name == "read1":
            return lambda *given: self._noted(found(*given))
        return found

    def _read_into(self, real: Any, into: Any) -> Any:
        size = real(into)
        if size is not None:
            self._noted(bytes(memoryview(into)[:size]))
        return size


class _Start:
    """What an application begins its answer with; everything else of it is as it was."""

    __slots__ = ("__wrapped__", "_handling")

    def __init__(self, handling: Handling, start_response: Any) -> None:
        self.__wrapped__ = start_response
        self._handling = handling

    def __call__(self, status: Any, headers: Any, *rest: Any, **named: Any) -> Any:
        _note_start(self._handling, status, headers)
        write = self.__wrapped__(status, headers, *rest, **named)
        return functools.partial(_write, self._handling, write) if callable(write) else write

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _write(handling: Handling, write: Callable[[bytes], Any], piece: bytes) -> Any:
    """Of those who send their answer by what ``start_response`` returns."""
    _note_piece(handling, piece)
    return write(piece)


def _note_start(handling: Handling, status: Any, headers: Any) -> None:
    attempt(_keep_start, handling, status, headers)


def _keep_start(handling: Handling, status: Any, headers: Any) -> None:
    code = str(status).split(" ", 1)[0]
    if code.isdecimal() and len(code) < 10:  # else the server will refuse it
        handling.status = int(code)
        if are_pairs(headers):
            handling.raw_headers = tuple([(str(name), str(value)) for name, value in headers])


def _note_piece(handling: Handling, piece: Any) -> None:
    if isinstance(piece, (bytes, bytearray, memoryview)):  # else the server will refuse it
        attempt(handling.sent, bytes(piece))


def _watch_answer(handling: Handling, environ: Environ, answer: Any) -> Any:
    kind = type(answer)
    if kind is list or kind is tuple:  # all of it is there, and some servers look at its length
        for piece in answer:
            _note_piece(handling, piece)
        handling.ended()
        return answer
    wrapper = environ.get("wsgi.file_wrapper")
    if wrapper is not None and isinstance(wrapper, type) and isinstance(answer, wrapper):
        # Servers recognize it and send the file by themselves.
        handling.tell("by", "file")
        handling.ended()
        return answer
    return _Answer(handling, answer)


class _Answer:
    """An answer that is made while it is sent: its pieces are noted, and an exception in the middle of it."""

    def __init__(self, handling: Handling, answer: Any) -> None:
        self.__wrapped__ = answer
        self._handling = handling
        self._pieces: Any = None
        handling.at_rest = True

    def __iter__(self) -> "_Answer":
        return self

    def __next__(self) -> bytes:
        self._handling.at_rest = False
        try:
            if self._pieces is None:
                self._pieces = iter(self.__wrapped__)
            piece: bytes = next(self._pieces)
        except StopIteration:
            self._handling.ended()
            raise
        except BaseException as error:
            attempt(self._handling.failed, error)
            self._handling.ended()
            raise
        _note_piece(self._handling, piece)
        self._handling.at_rest = True
        return piece

    def close(self) -> None:
        self._handling.at_rest = False
        try:
            close = getattr(self.__wrapped__, "close", None)
            if close is not None:
                close()
        finally:
            self._handling.ended()

    def __del__(self) -> None:
        attempt(self._handling.ended)  # unless it has

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)
