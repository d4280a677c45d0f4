"""How much a caller may ask: ASGI middleware, outside everything else, so that what it refuses costs little.

- Address and headers: bytes of both together. (uvicorn itself ends a connection whose headers are longer than 64 KiB.)
- Body: bytes, counted as they arrive, whatever Content-Length says; and a time in which it must be there.
- Rate: a token bucket for each token, and one for each address for all requests without a valid one; IPv6 by its /64.
- Requests at one time, of all callers and of one. A stream of events (``text/event-stream``) counts apart and lasts as long as it
  likes.
- A piece of an answer that nobody takes: the connection is cut.

No limit is set to how long a handler works: a thread cannot be stopped. What takes long is a task.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from relive.errors import (
    HeadersTooLarge,
    ReliveError,
    RequestTooLarge,
    RequestTooSlow,
    ServerBusy,
    TooManyRequests,
)
from relive.server.authentication import Authenticator, Caller
from relive.server.errors import answer_to

__all__ = ["Allowance", "Buckets", "RateLimitMiddleware"]

_CLOSE: Final = {"Connection": "close"}  # what is left of the body is not read


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits.

    Attributes:
        headers, body: bytes.
        body_seconds: in which a body must be there.
        stall_seconds: in which a piece of an answer must be taken.
        token_rate, token_burst: requests in a second, and at once, of one token.
        address_rate, address_burst: the same of one address without a token.
        requests, requests_each: at one time, of all, of one caller.
        streams, streams_each: streams of events, the same.
    """

    headers: int = 16 << 10
    body: int = 8 << 20
    body_seconds: float = 30.0
    stall_seconds: float = 60.0
    token_rate: float = 200.0
    token_burst: int = 400
    address_rate: float = 20.0
    address_burst: int = 60
    requests: int = 256
    requests_each: int = 64
    streams: int = 256
    streams_each: int = 32


class Buckets:
    """Token buckets by name. Those that were not used for longest are forgotten, and full again when they come back."""

    _KEPT: Final = 20_000

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name: (level, time of it)

    def acquire(self, name: str, rate: float, burst: int) -> float:
        """Take one; gives 0, or the seconds after which there will be one."""
        now = self._clock()
        level, then = self._levels.pop(name, (float(burst), now))
        level = min(float(burst), level + (now - then) * rate)
        wait = 0.0 if level >= 1 else (1 - level) / rate
        self._levels[name] = (level if wait else level - 1, now)
        if len(self._levels) > self._KEPT:
            self._levels.popitem(last=False)
        return wait


class _Places:
    """Places that are taken at one time, of all and of each."""

    def __init__(self, what: str, limit: int, each: int) -> None:
        self._what, self._limit, self._each = what, limit, each
        self._taken: Counter[str] = Counter()

    def enter(self, name: str) -> None:
        if self._taken.total() >= self._limit or self._taken[name] >= self._each:
            by = "all callers" if self._taken.total() >= self._limit else "this caller"
            raise ServerBusy(
                f"too many {self._what} at one time",
                cause=f"{by} together may have {self._limit if by == 'all callers' else self._each}",
                remedy="ask again in a moment, with fewer at one time",
            )
        self._taken[name] += 1

    def leave(self, name: str) -> None:
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]


class RateLimitMiddleware:
    """The middleware: ``app.add_middleware(Limits, gate=gate)``, as the last one added, which is the outermost."""

    def __init__(self, app: ASGIApp, *, gate: Authenticator, allowance: Allowance | None = None) -> None:
        self._app, self._gate = app, gate
        self._allowance = allowance or Allowance()
        self._buckets = Buckets()
        self._requests = _Places("requests", self._allowance.requests, self._allowance.requests_each)
        self._streams = _Places("streams of events", self._allowance.streams, self._allowance.streams_each)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass an HTTP request on, or answer it; a websocket, of which Relive has none, gets no further."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            self._check_size(scope)
            name, rate, burst = await self._caller(scope)
            if wait := math.ceil(self._buckets.acquire(name, rate, burst)):
                too_many = TooManyRequests(
                    "too many requests",
                    cause=f"{rate:g} in a second are allowed, {burst} at once",
                    remedy=f"ask again in {wait} s",
                )
                await answer_to(too_many, headers={"Retry-After": str(wait)})(scope, receive, send)
                return
            self._requests.enter(name)
        except ReliveError as error:
            close = _CLOSE if isinstance(error, RequestTooLarge | HeadersTooLarge) else None
            await answer_to(error, headers=close)(scope, receive, send)
            return
        passage = _Passage(self._allowance, receive, send, _Place(self._requests, self._streams, name))
        await passage.run(self._app, scope)

    def _check_size(self, scope: AsgiScope) -> None:
        headers = scope["headers"]
        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        size += sum(len(name) + len(value) + 4 for name, value in headers)
        if size > self._allowance.headers:
            raise HeadersTooLarge(
                "the address and headers of the request are too long",
                cause=f"{size} bytes; the server takes {self._allowance.headers}",
                remedy="put what is long into the body",
            )
        length = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(length) > self._allowance.body:  # uvicorn lets nothing but digits through
            raise _too_large(self._allowance.body)

    async def _caller(self, scope: AsgiScope) -> tuple[str, float, int]:
        """(name, rate, burst) by which requests of this caller are counted.

        The name is a token's only if the secret is right as well: else anybody could use up what another one may ask.
        """
        found = await self._gate.ask(scope)
        allowance = self._allowance
        if isinstance(found, Caller):
            name = f"token {found.token}" if found.token else f"address {found.address}"
            return name, allowance.token_rate, allowance.token_burst
        address = (scope.get("client") or ("", 0))[0]
        return f"unknown {_network(address)}", allowance.address_rate, allowance.address_burst


def _network(address: str) -> str:
    """What one caller has for itself: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        "the body of the request is too large", cause=f"the server takes {limit} bytes", remedy="send less"
    )


class _Place:
    """The one place that a request holds: first among requests, then perhaps among streams."""

    def __init__(self, requests: _Places, streams: _Places, name: str) -> None:
        self._held, self._streams, self._name = requests, streams, name

    def become_stream(self) -> None:
        """Raises ServerBusy: there are too many; the place among requests is kept."""
        self._streams.enter(self._name)
        self._held.leave(self._name)
        self._held = self._streams

    def leave(self) -> None:
        self._held.leave(self._name)


class _Cut(Exception):
    """The request was given up while its body was read; the answer is the middleware's."""


class _Passage:
    """One request on its way to the application and its answer back."""

    def __init__(self, allowance: Allowance, receive: Receive, send: Send, place: _Place) -> None:
        self._allowance, self._receive, self._send, self._place = allowance, receive, send, place
        self._left = allowance.body
        self._deadline = asyncio.get_running_loop().time() + allowance.body_seconds
        self._is_body_there = False
        self._is_started = False
        self._refusal: ReliveError | None = None

    async def run(self, app: ASGIApp, scope: AsgiScope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            # What the application makes of a body that broke off is of no interest; anything else is.
            if self._refusal is None or self._is_started:
                raise
        finally:
            self._place.leave()
        if self._refusal is not None and not self._is_started:
            await answer_to(self._refusal, headers=_CLOSE)(scope, self._receive, self._send)

    async def receive(self) -> Message:
        if self._refusal is not None:
            raise _Cut
        if self._is_body_there:
            return await self._receive()  # now it only tells that the client has gone
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._refusal = RequestTooSlow(
                "the body of the request did not arrive in time",
                cause=f"it may take {self._allowance.body_seconds:g} s",
                remedy="send less, or on a better line",
            )
            raise _Cut from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._is_body_there = not message.get("more_body", False)
            if self._left < 0:
                self._refusal = _too_large(self._allowance.body)
                raise _Cut
        return message

    async def send(self, message: Message) -> None:
        if self._refusal is not None and not self._is_started:
            return  # an answer to a request that was cut; ours comes when the application has ended
        if message["type"] == "http.response.start":
            content = next(
                (value for name, value in message.get("headers", ()) if name == b"content-type"), b""
            )
            if content.startswith(b"text/event-stream"):
                try:
                    self._place.become_stream()
                except ServerBusy as error:
                    self._refusal = error
                    raise _Cut from error
            self._is_started = True
        # A client that reads nothing would hold its place for ever.
        async with asyncio.timeout(self._allowance.stall_seconds):
            await self._send(message)
