"""HTTP calls by ``http.client`` and what stands on it: urllib.request, urllib3, requests, botocore.

What is asked is read from the bytes that the connection sends, so that everything above may build its requests as it likes.
In a replay a connection has a ``PlayedSocket``: what is sent to it goes nowhere, and when the request is whole, its recorded
answer is what can be read from it, as bytes. So all that the libraries do with an answer is done by themselves.
"""

import functools
import io
from http.client import HTTPMessage
from typing import Any, Callable, Iterator

from relive_recorder.guard import attempt
from relive_recorder.kinds.http_exchange import HttpExchange, described, error_of
from relive_recorder.kinds.http_line import STATE, Line, line_of
from relive_recorder.kinds.http_noting import NotingFile
from relive_recorder.kinds.http_played import PlayedSocket
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["change", "change_urllib3"]

_real: Any = None  # the functions of HTTPConnection as they were, see _Real


class _Real:
    def __init__(self, connection: Any) -> None:
        self.send = connection.send
        self.getresponse = connection.getresponse
        self.putrequest = connection.putrequest
        self.close = connection.close


def change(module: Any) -> None:
    """Change ``http.client``, and all connections that were or will be made from it."""
    global _real
    connection = module.HTTPConnection
    _real = _Real(connection)
    for function in (_send, _getresponse, _putrequest, _close):
        name = function.__name__[1:]
        setattr(connection, name, functools.wraps(getattr(connection, name))(function))
    before = connection.__init_subclass__

    def __init_subclass__(cls: Any, **named: Any) -> None:
        before.__func__(cls, **named) if hasattr(before, "__func__") else before(**named)
        attempt(_change_connect, cls)

    connection.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[arg-type]
    _change_all(connection)


def _change_all(connection: Any) -> None:
    _change_connect(connection)
    for below in type.__subclasses__(connection):
        _change_all(below)


def _change_connect(connection: Any) -> None:
    """A class's own ``connect``: it opens nothing in a replay."""
    real = connection.__dict__.get("connect")
    if real is None or hasattr(real, "_relive_real"):
        return

    @functools.wraps(real)
    def connect(self: Any) -> Any:
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY):
            return real(self)
        line = attempt(line_of, self)
        if line is None or line.connects:
            return real(self)
        if mode == REPLAY and not line.is_real:
            attempt(_open_played, self)
            return None
        line.connects = True
        try:
            return real(self)
        except BaseException as error:
            if line.wire is None and line.expected is not None:
                attempt(_connect_failed, self, line, error)
            raise
        finally:
            line.connects = False

    connect._relive_real = real  # type: ignore[attr-defined]
    connection.connect = connect


def _connect_failed(connection: Any, line: Line, error: BaseException) -> None:
    """A connection that was opened ahead, for a request that was never sent (urllib3, to TLS servers)."""
    exchange = HttpExchange()
    method, target, headers, body = line.expected
    exchange.asks(method, _url(connection, target), headers, _known(body))
    exchange.failed(error, "connect")


# -- the request ---------------------------------------------------------------------------------------------------


def _putrequest(self: Any, *given: Any, **named: Any) -> Any:
    line = self.__dict__.get(STATE)
    if line is not None:
        attempt(_give_up, self, line)
    return _real.putrequest(self, *given, **named)


def _close(self: Any) -> Any:
    line = self.__dict__.get(STATE)
    if line is not None and line.wire is not None and not line.answers:
        attempt(_give_up, self, line)
    return _real.close(self)


def _give_up(connection: Any, line: Line) -> None:
    """The request before this one never had its answer read."""
    trouble = line.trouble
    if trouble is not None:
        _fail(connection, line, trouble, "send")
    line.forget()


def _send(self: Any, data: Any) -> Any:
    mode = recorder.mode()
    line = attempt(line_of, self) if mode in (RECORD, REPLAY) else None
    if line is None or line.connects or line.is_real:
        return _real.send(self, data)
    line.begin()
    if mode == REPLAY:
        for part in _pieces(self, data):
            _send_played(self, line, part)
        return None
    if isinstance(data, (bytes, bytearray)):
        attempt(_feed, line, data)
    else:
        data = _noted(self, line, data)
    try:
        return _real.send(self, data)
    except BaseException as error:
        if recorder.mode() == REPLAY:  # brought back while it was being sent
            return _look_up(self, line) if line.wire is None or line.wire.is_complete else None
        if isinstance(error, (BrokenPipeError, ConnectionResetError)):
            line.trouble = error
        else:
            attempt(_fail, self, line, error, "connect" if self.sock is None else "send")
        raise


def _feed(line: Line, data: Any) -> None:
    if line.wire is not None:
        line.wire.feed(bytes(data))


def _noted(connection: Any, line: Line, data: Any) -> Any:
    """Something to send that is no bytes: read as ``http.client`` would, noted, and handed on in pieces."""

    def pieces() -> Iterator[Any]:
        for part in _pieces(connection, data):
            attempt(_feed, line, part)
            yield part

    return pieces()


def _pieces(connection: Any, data: Any) -> Iterator[Any]:
    """Bytes as ``HTTPConnection.send`` takes them out of what it is given."""
    if hasattr(data, "read"):
        is_text = isinstance(data, io.TextIOBase)
        while True:
            block = data.read(getattr(connection, "blocksize", 8192))
            if not block:
                return
            yield block.encode("iso-8859-1") if is_text else block
    try:
        memoryview(data)
    except TypeError:
        yield from data
    else:
        yield bytes(data)


def _url(connection: Any, target: str) -> str:
    if "://" in target[:16]:  # a proxy is asked
        return target
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = (
        getattr(connection, "_tunnel_port", None) if tunnel else connection.port
    ) or connection.default_port
    scheme, usual = ("https", 443) if connection.default_port == 443 else ("http", 80)
    named = f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}{'' if port == usual else f':{port}'}{target}"


def _known(body: Any) -> Any:
    """What is known of a body before it is sent."""
    from relive_recorder import bodies

    if body is None:
        return ""
    if isinstance(body, str):
        body = body.encode("utf-8")
    if isinstance(body, (bytes, bytearray)):
        return bodies.describe(bytes(body))
    return {"stream": type(body).__name__}


def _asks(connection: Any, line: Line) -> HttpExchange:
    """The exchange, told what is asked as far as it was sent (or is going to be)."""
    wire, exchange = line.wire, line.exchange
    assert wire is not None and exchange is not None
    body = described(wire.body)
    if not wire.is_complete and not wire.body.length and line.expected is not None:
        body = _known(line.expected[3])
    exchange.asks(wire.method, _url(connection, wire.target), wire.headers, body)
    return exchange


def _fail(connection: Any, line: Line, error: BaseException, stage: str) -> None:
    if line.wire is not None and line.wire.has_head:
        _asks(connection, line).failed(error, stage)
    line.forget()


# -- the answer ----------------------------------------------------------------------------------------------------


def _getresponse(self: Any) -> Any:
    mode = recorder.mode()
    line = self.__dict__.get(STATE)
    if mode not in (RECORD, REPLAY) or line is None or line.wire is None:
        return _real.getresponse(self)
    if mode == REPLAY and not line.is_real:
        if line.kept is None:
            _look_up(self, line)
        if not line.is_real and not isinstance(self.sock, PlayedSocket):
            _open_played(self)  # the request was sent before the commit, its answer is asked for behind it
        return _answer(self, line)
    try:
        response = _get(self, line)
    except BaseException as error:
        if recorder.mode() == REPLAY and not line.is_real and _bring_back(self, line):
            return _answer(self, line)
        attempt(_fail, self, line, line.trouble or error, "answer")
        raise
    attempt(_watch, self, line, response)
    return response


def _get(connection: Any, line: Line) -> Any:
    line.answers = True
    try:
        return _real.getresponse(connection)
    finally:
        line.answers = False


def _watch(connection: Any, line: Line, response: Any) -> None:
    """Note the answer, and have its body noted as it is read."""
    exchange = _asks(connection, line)
    headers: HTTPMessage = response.headers
    exchange.answered(response.status, response.reason, list(headers.items()))
    if response.fp is None:
        exchange.ended()
    else:
        response.fp = NotingFile(response.fp, exchange, bool(response.chunked), response.length)
    line.forget()


# -- replay --------------------------------------------------------------------------------------------------------


def _open_played(connection: Any) -> None:
    connection.sock = PlayedSocket(line_of(connection))
    if hasattr(connection, "cert_reqs"):  # urllib3 warns of connections it could not verify
        connection.is_verified = connection.cert_reqs in (None, 2, "CERT_REQUIRED")
    if hasattr(connection, "_has_connected_to_proxy"):
        connection._has_connected_to_proxy = bool(connection.proxy)


def _send_played(connection: Any, line: Line, data: bytes) -> None:
    if connection.sock is None and not connection.auto_open:
        _real.send(connection, data)  # raises what it raises for this
    if not isinstance(connection.sock, PlayedSocket):
        _open_played(connection)  # in place of one of the commit, of which nobody is at the other end
    if line.is_real:
        _real.send(connection, data)
        return
    line.sent.append(bytes(data))
    attempt(_feed, line, data)
    if line.wire is not None and line.wire.is_complete:
        _look_up(connection, line)


def _look_up(connection: Any, line: Line) -> None:
    """Find the answer. Raises ``NoAnswer``, or the recorded error if the call had failed before an answer could come."""
    exchange = attempt(_asks, connection, line)
    if exchange is None:
        return
    line.kept = exchange.find()
    if line.kept is None:
        _let_out(connection, line)
    elif line.kept.fields.get("stage") in ("connect", "send") and "answer" not in line.kept.fields:
        error = error_of(line.kept, conn=connection, pool=connection)
        attempt(exchange.failed, error, line.kept.fields["stage"])
        line.forget()
        raise error


def _let_out(connection: Any, line: Line) -> None:
    """Policy has this call made really."""
    line.is_real = True
    connection.sock = None
    connection.connect()
    for data in line.sent:
        _real.send(connection, data)
    line.sent = []


def _bring_back(connection: Any, line: Line) -> bool:
    """The answer to a call that was under way when the commit was taken; False when there is none."""
    from relive_recorder.calls import NoAnswer

    try:
        exchange = attempt(_asks, connection, line)
        line.kept = exchange.find() if exchange is not None else None
    except NoAnswer:
        return False
    if line.kept is None:
        return False
    _real.close(connection)
    _open_played(connection)
    connection._HTTPConnection__state = "Request-sent"
    return True


def _answer(connection: Any, line: Line) -> Any:
    try:
        response = _get(connection, line)
    except BaseException as error:
        if line.exchange is not None:
            attempt(line.exchange.failed, error, "answer")
        line.forget()
        raise
    attempt(_watch, connection, line, response)
    return response


# -- urllib3 -------------------------------------------------------------------------------------------------------


def change_urllib3(module: Any) -> None:
    """Have its pools say what they are going to send: they open connections before that."""
    pool = module.HTTPConnectionPool
    real: Callable[..., Any] = pool._make_request

    @functools.wraps(real)
    def _make_request(self: Any, conn: Any, method: Any, url: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() not in (RECORD, REPLAY):
            return real(self, conn, method, url, *given, **named)
        line = attempt(line_of, conn)
        if line is not None:
            attempt(_expect, line, method, url, given, named)
        try:
            return real(self, conn, method, url, *given, **named)
        finally:
            if line is not None:
                line.expected = None

    pool._make_request = _make_request


def _expect(line: Line, method: str, url: str, given: Any, named: Any) -> None:
    body = given[0] if given and not isinstance(given[0], (int, float)) else named.get("body")
    headers = named.get("headers") or (given[1] if len(given) > 1 else None) or {}
    line.expected = (method, url, list(headers.items()) if hasattr(headers, "items") else [], body)
