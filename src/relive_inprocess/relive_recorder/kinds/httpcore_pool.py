"""HTTP calls by httpcore, which httpx stands on: sync and async, HTTP/1.1 and HTTP/2, streams in both directions.

Seen where a connection pool is handed a request. In a replay no pool does anything: the recorded answer is handed back as
httpcore's own ``Response``, and httpx makes of it what it always makes.
"""

import functools
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Tuple

from relive_recorder import context
from relive_recorder.calls import KeptAnswer, NoAnswer
from relive_recorder.guard import attempt
from relive_recorder.kinds.http_exchange import (
    HttpExchange,
    answer_of,
    described,
    error_of,
    forget,
    until_cancelled,
    was_cancelled,
)
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.wire import CollectedBody, in_pieces

__all__ = ["change"]

_httpcore: Any = None


def change(module: Any) -> None:
    """Change both pools of ``httpcore`` (its proxies are pools too)."""
    global _httpcore
    _httpcore = module
    pool, async_pool = module.ConnectionPool, module.AsyncConnectionPool
    pool.handle_request = _sync(pool.handle_request)
    async_pool.handle_async_request = _async(async_pool.handle_async_request)


def _sync(real: Any) -> Any:
    @functools.wraps(real)
    def handle_request(self: Any, request: Any) -> Any:
        mode = recorder.mode()
        call = attempt(_Call, request) if mode in (RECORD, REPLAY) else None
        if call is None:
            return real(self, request)
        if mode == REPLAY:
            call.sent.read_all()
            kept = call.find()
            if kept is not None:
                return call.play(kept)
        try:
            with call:
                response = real(self, request)
        except BaseException as error:
            kept = call.brought_back(error)
            if kept is None:
                raise
            return call.play(kept)
        attempt(call.watch, response)
        return response

    return handle_request


def _async(real: Any) -> Any:
    @functools.wraps(real)
    async def handle_async_request(self: Any, request: Any) -> Any:
        mode = recorder.mode()
        call = attempt(_Call, request) if mode in (RECORD, REPLAY) else None
        if call is None:
            return await real(self, request)
        if mode == REPLAY:
            await call.sent.read_all_async()
            kept = call.find()
            if kept is not None:
                if "answer" not in kept.fields and was_cancelled(kept):
                    await call.cancelled_again(kept)
                return call.play(kept)
        try:
            with call:
                response = await real(self, request)
        except BaseException as error:
            kept = call.brought_back(error)
            if kept is None:
                raise
            return call.play(kept)
        attempt(call.watch, response)
        return response

    return handle_async_request


class _Call:
    """One request of a pool."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.exchange = HttpExchange()
        self.sent = request.stream = _Sent(request.stream)
        self._mode = recorder.mode()

    def __enter__(self) -> None:
        """It is performed now: see ``context.inward``."""
        self.sent.call = attempt(context.inward)

    def __exit__(self, *_: Any) -> None:
        if self.sent.call is not None:
            context.outward(self.sent.call)

    def _asks(self) -> None:
        request, url = self._request, self._request.url
        usual = {b"http": 80, b"https": 443}.get(url.scheme)
        port = "" if url.port in (None, usual) else f":{url.port}"
        text = (
            f"{url.scheme.decode('ascii')}://{url.host.decode('latin-1')}{port}{url.target.decode('latin-1')}"
        )
        self.exchange.asks(
            request.method.decode("ascii"), text, _text(request.headers), described(self.sent.body)
        )

    def find(self) -> Optional[KeptAnswer]:
        """As ``Channel.find``."""
        attempt(self._asks)
        return self.exchange.find()

    def brought_back(self, error: BaseException) -> Optional[KeptAnswer]:
        """The recorded answer to a call that was under way when the commit was taken; else its error is recorded."""
        if self._mode == RECORD and recorder.mode() == REPLAY:
            try:
                return self.find()
            except NoAnswer:
                return None
        attempt(self._fail, error)
        return None

    def _fail(self, error: BaseException) -> None:
        self.sent.note_unsent()
        self._asks()
        name = type(error).__name__
        connects = name.startswith("Connect") or name in ("PoolTimeout", "ProxyError", "UnsupportedProtocol")
        self.exchange.failed(
            error, "connect" if connects else "send" if name.startswith("Write") else "answer"
        )

    def watch(self, response: Any) -> None:
        """Note the answer, and have its body noted as it is read."""
        self._asks()
        extensions: Dict[str, Any] = response.extensions
        self.exchange.answered(
            response.status,
            extensions.get("reason_phrase", b"").decode("latin-1"),
            _text(response.headers),
            http=extensions.get("http_version", b"").decode("latin-1"),
        )
        response.stream = _Noting(response.stream, self.exchange)

    async def cancelled_again(self, kept: KeptAnswer) -> None:
        """As ``until_cancelled``, with the event that tells of it."""
        try:
            await until_cancelled(kept)
        except BaseException as error:
            attempt(self.exchange.failed, error, str(kept.fields.get("stage", "answer")))
            raise

    def play(self, kept: KeptAnswer) -> Any:
        """The recorded answer as a ``Response``; raises the recorded error."""
        if "answer" not in kept.fields:
            error = error_of(kept)
            attempt(self.exchange.failed, error, str(kept.fields.get("stage", "answer")))
            raise error
        status, reason, headers = answer_of(kept)
        broke = error_of(kept) if "error" in kept.fields else None
        extensions = {
            "http_version": str(kept.fields.get("http", "HTTP/1.1")).encode("latin-1"),
            "reason_phrase": reason.encode("latin-1", "replace"),
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
        response = _httpcore.Response(
            status, headers=raw, content=_Played(kept, broke), extensions=extensions
        )
        attempt(self.watch, response)
        return response


def _text(headers: Any) -> List[Tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


class _Sent:
    """A request's body on its way: httpcore iterates over it, once.

    Attributes:
        call: in which it is sent, see ``context.inward``; what makes the body is the service's own code.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._held: Optional[List[bytes]] = None
        self.body = CollectedBody(recorder.options.body_bytes)
        self.call: Any = None

    def read_all(self) -> None:
        """In a replay: all of it, so that it is known what is asked."""
        self._held = list(iter(self))

    async def read_all_async(self) -> None:
        """As ``read_all``."""
        self._held = [part async for part in self]

    def note_unsent(self) -> None:
        """A body of which nothing was sent, where it is known all the same: httpx and httpcore hold it as bytes."""
        for name in ("_stream", "_content"):
            held = getattr(self._stream, name, None)
            if isinstance(held, bytes) and not self.body.length:
                self.body.add(held)

    def __iter__(self) -> Iterator[bytes]:
        if self._held is not None:
            yield from self._held
            return
        self._outward()
        for part in self._stream:
            attempt(self.body.add, part)
            self._further()
            yield part
            self._outward()
        self._further()

    def _outward(self) -> None:
        if self.call is not None:
            context.outward(self.call)

    def _further(self) -> None:
        if self.call is not None:
            context.further(self.call)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._held is not None:
            for part in self._held:
                yield part
            return
        self._outward()
        async for part in self._stream:
            attempt(self.body.add, part)
            self._further()
            yield part
            self._outward()
        self._further()

    def __getattr__(self, name: str) -> Any:  # "close", "aclose" where the stream has them
        return getattr(self._stream, name)


class _Noting:
    """Stands for an answer's stream, and notes what is read from it."""

    def __init__(self, stream: Any, exchange: HttpExchange) -> None:
        self._stream = stream
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._stream:
                attempt(self._exchange.got, part)
                yield part
        except GeneratorExit:
            raise
        except BaseException as error:
            rest = self._rest(error)
            if rest is None:
                raise
            yield rest
        attempt(self._exchange.ended)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                attempt(self._exchange.got, part)
                yield part
        except GeneratorExit:
            raise
        except BaseException as error:
            rest = self._rest(error)
            if rest is None:
                raise
            yield rest
        attempt(self._exchange.ended)

    def _rest(self, error: BaseException) -> Optional[bytes]:
        """What of a body that was being read when the commit was taken was read later; else the error is recorded."""
        if recorder.mode() == REPLAY and not self._exchange.is_played:
            try:
                kept = self._exchange.find()
            except NoAnswer:
                kept = None
            if kept is not None and "error" not in kept.fields:
                rest = kept.data[self._exchange.length :]
                attempt(self._exchange.got, rest)
                return rest
        attempt(self._exchange.failed, error, "body")
        return None

    def close(self) -> None:
        forget(self._exchange)
        if hasattr(self._stream, "close"):
            self._stream.close()

    async def aclose(self) -> None:
        forget(self._exchange)
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()

    def __del__(self) -> None:
        forget(self.__dict__.get("_exchange"))


class _Played:
    """A recorded body, and then the recorded error if there was one."""

    def __init__(self, kept: KeptAnswer, error: Optional[BaseException]) -> None:
        self._pieces = in_pieces(kept.data, kept.fields.get("pieces"))
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part

    def close(self) -> None:
        """There is nothing to let go of."""

    async def aclose(self) -> None:
        """There is nothing to let go of."""
