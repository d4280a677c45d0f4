"""HTTP calls by aiohttp's client.

A call begins where a connector is asked for a connection, and ends when the answer's body was read or let go of. The body is noted
as the service reads it, so with its content encoding removed (``decoded``). In a replay the connector hands out a connection that
leads nowhere, on which the recorded head and body stand ready.
"""

import functools
import sys
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder import context
from relive_recorder.calls import KeptAnswer, NoAnswer
from relive_recorder.guard import attempt
from relive_recorder.kinds.http_exchange import (
    HttpExchange,
    answer_of,
    error_of,
    forget,
    patience,
    until_cancelled,
    was_cancelled,
)
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.wire import in_pieces

__all__ = ["change"]

_EXCHANGE = "_relive_exchange"
_reading: Dict[int, HttpExchange] = {}  # by id of the stream that is being read; see _Watch


def change() -> None:
    """Change aiohttp's connectors, answers and streams."""
    connector = _aiohttp("connector").BaseConnector
    response = _aiohttp("client_reqrep").ClientResponse
    stream = _aiohttp("streams").StreamReader
    connector.connect = _connect(connector.connect)
    connector.close = _closing(connector.close)
    response.start = _start(response.start)
    for name in ("close", "release"):
        setattr(response, name, _letting_go(getattr(response, name)))
    stream._read_nowait_chunk = _taking(stream._read_nowait_chunk)
    stream._read_nowait = _ending(stream._read_nowait)
    stream._wait = _waiting(stream._wait)
    stream.set_exception = _breaking(stream.set_exception)


def _aiohttp(name: str) -> Any:
    """A module of aiohttp's: this one is loaded when aiohttp is, and never without it."""
    return sys.modules[f"aiohttp.{name}"]


def _asks(exchange: HttpExchange, request: Any) -> None:
    exchange.asks(
        request.method, str(request.url.with_fragment(None)), list(request.headers.items()), _body(request)
    )


def _body(request: Any) -> Any:
    from relive_recorder import bodies

    body = request.body
    body = getattr(body, "_value", body)  # of a payload that holds bytes
    if body is None:
        return ""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bodies.describe(bytes(body))
    return {"stream": type(request.body).__name__}


def _connect(real: Any) -> Any:
    @functools.wraps(real)
    async def connect(self: Any, req: Any, *given: Any, **named: Any) -> Any:
        mode = recorder.mode()
        exchange = attempt(HttpExchange) if mode in (RECORD, REPLAY) else None
        if exchange is None:
            return await real(self, req, *given, **named)
        attempt(_asks, exchange, req)
        if mode == REPLAY:
            kept = exchange.find()
            if kept is not None:
                if was_cancelled(kept) and kept.fields.get("stage") == "connect":
                    await _cancelled_again(exchange, kept)
                return _played_connection(self, req, exchange, kept)
        call = attempt(context.inward)
        try:
            try:
                connection = await real(self, req, *given, **named)
            finally:
                if call is not None:
                    context.outward(call)
        except BaseException as error:
            kept = _brought_back(exchange)
            if kept is not None:
                return _played_connection(self, req, exchange, kept)
            attempt(exchange.failed, error, "connect")
            raise
        setattr(connection, _EXCHANGE, exchange)
        return connection

    return connect


async def _cancelled_again(exchange: HttpExchange, kept: KeptAnswer) -> None:
    """Of a call that was cancelled while it waited for a connection."""
    try:
        await until_cancelled(kept)
    except BaseException as error:
        attempt(exchange.failed, error, "connect")
        raise


def _closing(real: Any) -> Any:
    """Of connections, which in a replay are not there, so that there is no task for it either."""

    @functools.wraps(real)
    def close(self: Any, *given: Any, **named: Any) -> Any:
        call = attempt(context.inward) if recorder.mode() in (RECORD, REPLAY) else None
        try:
            return real(self, *given, **named)
        finally:
            if call is not None:
                context.outward(call)

    return close


def _start(real: Any) -> Any:
    @functools.wraps(real)
    async def start(self: Any, connection: Any) -> Any:
        exchange = connection.__dict__.get(_EXCHANGE)
        if exchange is None:
            return await real(self, connection)
        try:
            result = await real(self, connection)
        except BaseException as error:
            kept = _brought_back(exchange)
            if kept is None or "answer" not in kept.fields:
                attempt(exchange.failed, error, "answer")
                raise
            connection._protocol = _played_protocol(connection._loop, kept)
            result = await real(self, connection)
        attempt(_watch, self, exchange)
        return result

    return start


def _brought_back(exchange: HttpExchange) -> Optional[KeptAnswer]:
    """The recorded answer to a call that was under way when the commit was taken."""
    if recorder.mode() != REPLAY or exchange.is_played:
        return None
    try:
        return exchange.find()
    except NoAnswer:
        return None


class _Watch:
    """Lies in an answer, and goes with it."""

    def __init__(self, exchange: HttpExchange, stream: Any) -> None:
        self.exchange = exchange
        self._stream = stream
        _reading[id(stream)] = exchange

    def let_go(self, whole: bool = False) -> None:
        _reading.pop(id(self._stream), None)
        forget(self.exchange, whole)

    def __del__(self) -> None:
        self.let_go()


def _watch(response: Any, exchange: HttpExchange) -> None:
    headers = [
        (name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in response.raw_headers
    ]
    exchange.answered(response.status, response.reason or "", headers, decoded=True)
    if type(response.content).__name__ == "EmptyStreamReader":  # one for all answers without a body
        exchange.ended()
        return
    watch = _Watch(exchange, response.content)
    response.__dict__[_EXCHANGE] = watch
    if response.content.at_eof():
        watch.let_go(whole=True)


def _letting_go(real: Any) -> Any:
    @functools.wraps(real)
    def let_go(self: Any) -> Any:
        watch = self.__dict__.get(_EXCHANGE)
        if watch is not None:
            attempt(watch.let_go)
        return real(self)

    return let_go


# -- streams: those of answers are in _reading, all others pass -------------------------------------------------------


def _taking(real: Any) -> Any:
    @functools.wraps(real)
    def _read_nowait_chunk(self: Any, n: int) -> bytes:
        data: bytes = real(self, n)
        exchange = _reading.get(id(self))
        if exchange is not None:
            attempt(_took, self, exchange, data)
        return data

    return _read_nowait_chunk


def _took(stream: Any, exchange: HttpExchange, data: bytes) -> None:
    exchange.got(bytes(data))
    _end_if_read(stream, exchange)


def _end_if_read(stream: Any, exchange: HttpExchange) -> None:
    if stream.at_eof() and stream.exception() is None:
        _reading.pop(id(stream), None)
        exchange.ended()


def _ending(real: Any) -> Any:
    @functools.wraps(real)
    def _read_nowait(self: Any, n: int) -> bytes:
        data: bytes = real(self, n)
        exchange = _reading.get(id(self))
        if exchange is not None:
            attempt(_end_if_read, self, exchange)
        return data

    return _read_nowait


def _waiting(real: Any) -> Any:
    @functools.wraps(real)
    async def _wait(self: Any, func_name: str) -> None:
        try:
            await real(self, func_name)
        except BaseException as error:
            exchange = _reading.get(id(self))
            if exchange is not None:
                attempt(exchange.failed, error, "body")
            raise

    return _wait


def _breaking(real: Any) -> Any:
    @functools.wraps(real)
    def set_exception(self: Any, exc: BaseException, *given: Any) -> Any:
        exchange = _reading.get(id(self))
        if exchange is not None:
            kept = attempt(_brought_back, exchange)
            if kept is not None and "error" not in kept.fields:
                self.feed_data(kept.data[exchange.length + self.total_bytes - self._cursor :])
                return self.feed_eof()
            attempt(exchange.failed, exc, "body")
        return real(self, exc, *given)

    return set_exception


# -- replay --------------------------------------------------------------------------------------------------------


def _played_connection(connector: Any, request: Any, exchange: HttpExchange, kept: KeptAnswer) -> Any:
    import asyncio

    if "answer" not in kept.fields and kept.fields.get("stage") == "connect":
        os_error = OSError(kept.fields["error"].get("errno"), kept.fields["error"].get("strerror"))
        error = error_of(kept, _conn_key=request.connection_key, _os_error=os_error)
        attempt(exchange.failed, error, "connect")
        raise error
    loop = asyncio.get_running_loop()
    connection = _aiohttp("connector").Connection(
        connector, request.connection_key, _played_protocol(loop, kept), loop
    )
    setattr(connection, _EXCHANGE, exchange)
    return connection


def _played_protocol(loop: Any, kept: KeptAnswer) -> Any:
    """A ``ResponseHandler`` that has the recorded answer ready."""
    protocol = _protocol_class()(loop)
    protocol.kept = kept
    protocol.connection_made(_transport_class()())
    protocol.force_close()  # so that nobody puts it into a pool
    return protocol


@functools.lru_cache(maxsize=None)
def _protocol_class() -> Any:
    class PlayedProtocol(_aiohttp("client_proto").ResponseHandler):  # type: ignore[misc]
        kept: KeptAnswer

        async def read(self) -> Tuple[Any, Any]:
            if "answer" not in self.kept.fields:
                if was_cancelled(self.kept):
                    await until_cancelled(self.kept)
                raise error_of(self.kept)
            return _message(self.kept), _stream(self, self._loop, self.kept)

        def set_response_params(self, **_named: Any) -> None:
            """Nothing is parsed, no time-out runs."""

    return PlayedProtocol


@functools.lru_cache(maxsize=None)
def _transport_class() -> Any:
    import asyncio

    class PlayedTransport(asyncio.Transport):
        """What is written is lost."""

        _closing = False

        def write(self, data: Any) -> None:
            """See the class."""

        def writelines(self, list_of_data: Any) -> None:
            """See the class."""

        def is_closing(self) -> bool:
            return self._closing

        def close(self) -> None:
            self._closing = True

        abort = close

        def pause_reading(self) -> None:
            """All is there already."""

        resume_reading = pause_reading

        def is_reading(self) -> bool:
            return True

        def get_extra_info(self, _name: str, default: Any = None) -> Any:
            return default

        def get_write_buffer_size(self) -> int:
            return 0

    return PlayedTransport


def _message(kept: KeptAnswer) -> Any:
    multidict = sys.modules["multidict"]
    status, reason, headers = answer_of(kept)
    raw: List[Tuple[bytes, bytes]] = [
        (name.encode("latin-1", "replace"), value.encode("utf-8", "surrogateescape"))
        for name, value in headers
    ]
    many = multidict.CIMultiDictProxy(multidict.CIMultiDict(headers))
    encoding = many.get("Content-Encoding")
    chunked = "chunked" in many.get("Transfer-Encoding", "").lower()
    version = _aiohttp("http").HttpVersion11
    message = _aiohttp("http_parser").RawResponseMessage
    return message(version, status, reason, many, tuple(raw), True, encoding, False, chunked)


def _stream(protocol: Any, loop: Any, kept: KeptAnswer) -> Any:
    if not kept.data and "error" not in kept.fields and kept.fields.get("whole", True):
        return _aiohttp("streams").EMPTY_PAYLOAD
    stream = _aiohttp("streams").StreamReader(protocol, 1 << 30, loop=loop)
    for piece in in_pieces(kept.data, kept.fields.get("pieces")):
        stream.feed_data(piece)
    if "error" not in kept.fields:
        if kept.data or kept.fields.get("whole", True):
            stream.feed_eof()
        else:  # nobody had read it: its end is there once somebody could
            loop.call_soon(stream.feed_eof)
    elif was_cancelled(kept):  # its reader gives up again; else it breaks
        loop.call_later(patience(kept), stream.set_exception, error_of(kept))
    elif not kept.data:
        stream.set_exception(error_of(kept))
    else:
        # A stream that has an exception gives nothing any more: first it must be read.
        loop.call_soon(_break_when_read, loop, stream, error_of(kept))
    return stream


def _break_when_read(loop: Any, stream: Any, error: BaseException) -> None:
    if stream._waiter is None and stream._buffer:
        loop.call_later(0.001, _break_when_read, loop, stream, error)
    else:
        stream.set_exception(error)
