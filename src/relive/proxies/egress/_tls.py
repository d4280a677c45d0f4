"""TLS opened on its way: the real server is met as the service would meet it, and the service as that server would.

1. The service's first message has been read: which name it wants, what protocols it offers. With these the recorder begins TLS with
   the real server and checks its certificate against the system's roots.
2. Only when that has succeeded the service is answered, with a certificate of the same names by the life's authority.
3. What is inside goes from one to the other, and to the recording.

Whatever goes wrong before the service has been answered makes the connection begin anew, passed on as it is: the service then meets
the real certificate, and its own rules decide. This module has no sockets: bytes come in and go out through its ``Passage``.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from relive.proxies.egress.client_hello import Hello
from relive.recording.dialogues import Way

if TYPE_CHECKING:  # `cryptography` takes its time to be imported
    from relive.proxies.egress.authority import Authority

__all__ = ["Opened", "Passage", "Roots"]

_READ = 1 << 18  # [bytes]
_CONTEXTS_MOST = 32
_CERTIFICATE_REQUEST = 13  # handshake message


class Passage(Protocol):
    """The connection whose TLS is opened. ``way`` is the direction in which bytes go."""

    def send(self, way: Way, raw: bytes) -> None:
        """Send bytes as they are to be on the wire."""

    def said(self, way: Way, plain: bytes) -> None:
        """Record what was inside; called before it is sent on."""

    def is_open(self) -> None:
        """Both ends have agreed: what follows is what was inside."""

    def begin_anew(self, reason: str) -> None:
        """Pass the connection on as it is, from its first byte; this object is not used any more."""

    def distrusted(self, reason: str) -> None:
        """The service does not trust the authority: nothing more can be said on this connection."""

    def finished(self, way: Way) -> None:
        """This direction has ended in order, inside."""

    def broken(self, way: Way) -> None:
        """What came in this direction is no TLS any more."""


class _Stage(Enum):
    SERVER = auto()  # the real server has been asked
    SERVICE = auto()  # the service has been answered
    OPEN = auto()


class _End:
    """One of the two TLS connections."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, name: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side, server_hostname=name
        )


class Opened:
    """One connection.

    Args:
        first: what the service has sent, its hello at the beginning.
        address: of the real server, which is its name where the service gave none.

    Attributes:
        first: all that the service has sent so far, as long as it has not been answered.
    """

    def __init__(
        self, passage: Passage, authority: Authority, roots: Roots, hello: Hello, first: bytes, address: str
    ) -> None:
        self._passage = passage
        self._authority = authority
        self.first = first
        self._stage = _Stage.SERVER
        self._wants_certificate = False
        self._server = _End(roots.context_for(hello.protocols), server_side=False, name=hello.name or address)
        roots.watch(self._server.tls, self._wanted)
        self._service: _End | None = None
        self._finished: set[Way] = set()
        self._has_said = False

    @property
    def is_answered(self) -> bool:
        """The service has been answered: there is no way back."""
        return self._service is not None

    def start(self) -> None:
        """Begin with the real server."""
        self._meet_server()

    def came(self, way: Way, raw: bytes) -> None:
        """Bytes as they were on the wire."""
        if way is Way.UP and self._service is None:
            self.first += raw
            return
        self._end(way).incoming.write(raw)
        self._go_on(way)

    def ended(self, way: Way) -> None:
        """No more bytes come from there."""
        if way is Way.UP and self._service is None:
            return  # the service has given up; the real server will be told when it has answered
        self._end(way).incoming.write_eof()
        self._go_on(way)

    def _go_on(self, way: Way) -> None:
        if self._stage is _Stage.SERVER:
            self._meet_server()
        elif self._stage is _Stage.SERVICE:
            if way is Way.UP:
                self._meet_service()
        else:
            self._carry(way)

    def _wanted(self) -> None:
        self._wants_certificate = True

    def _meet_server(self) -> None:
        tls = self._server.tls
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError) as error:
            self._passage.begin_anew(_reason(error))
            return
        if self._wants_certificate:
            self._passage.begin_anew("the server asks for a certificate of the service")
            return
        real = tls.getpeercert(binary_form=True)
        assert real is not None
        try:
            context = self._authority.context_for(real, tls.selected_alpn_protocol())
        except (ValueError, TypeError, ssl.SSLError) as error:  # a certificate that nobody can imitate
            self._passage.begin_anew(_reason(error))
            return
        self._flush()
        self._service = _End(context, server_side=True, name=None)
        self._service.incoming.write(self.first)
        self.first = b""
        self._stage = _Stage.SERVICE
        self._meet_service()

    def _meet_service(self) -> None:
        assert self._service is not None
        try:
            self._service.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()
            self._passage.distrusted(_reason(error))
            return
        self._stage = _Stage.OPEN
        self._passage.is_open()
        self._flush()
        self._carry(Way.UP)
        self._carry(Way.DOWN)

    def _carry(self, way: Way) -> None:
        source, destination = self._end(way), self._end(_other(way))
        while way not in self._finished:
            try:
                plain = source.tls.read(_READ)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                plain = b""
            except ssl.SSLError as error:
                self._flush()
                if way is Way.UP and not self._has_said:
                    self._passage.distrusted(_reason(error))
                else:
                    self._passage.broken(way)
                return
            if plain:
                self._has_said = self._has_said or way is Way.UP
                self._passage.said(way, plain)
                destination.tls.write(plain)
                continue
            self._finished.add(way)
            self._flush()
            if way is Way.UP and not self._has_said and Way.DOWN not in self._finished:
                # Some look at a certificate only when all is agreed, and then say nothing (Node.js).
                self._passage.distrusted("it ended the connection before it had said a word")
                return
            self._passage.finished(way)
            with contextlib.suppress(ssl.SSLError):
                destination.tls.unwrap()
        self._flush()

    def _end(self, way: Way) -> _End:
        """Where what goes in this direction comes from."""
        if way is Way.DOWN:
            return self._server
        assert self._service is not None
        return self._service

    def _flush(self) -> None:
        if raw := self._server.outgoing.read():
            self._passage.send(Way.UP, raw)
        if self._service is not None and (raw := self._service.outgoing.read()):
            self._passage.send(Way.DOWN, raw)


class Roots:
    """Whom the recorder trusts as a client: the system's roots, as the recorder's environment names them."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._watched: WeakKeyDictionary[ssl.SSLObject, Callable[[], None]] = WeakKeyDictionary()

    def context_for(self, protocols: tuple[str, ...]) -> ssl.SSLContext:
        """A context that offers these protocols. Making one reads all roots, which takes 50 ms."""
        context = self._contexts.get(protocols)
        if context is None:
            if len(self._contexts) >= _CONTEXTS_MOST:
                self._contexts.clear()
            context = ssl.create_default_context()
            if protocols:
                context.set_alpn_protocols(list(protocols))
            # The one way to see that a server asks for a certificate, before it is too late to begin anew.
            context._msg_callback = self._saw  # type: ignore[attr-defined]
            self._contexts[protocols] = context
        return context

    def watch(self, tls: ssl.SSLObject, wanted: Callable[[], None]) -> None:
        """``wanted`` is called when the server asks for a certificate."""
        self._watched[tls] = wanted

    def _saw(
        self, tls: Any, direction: str, _version: Any, _content: Any, message: Any, _data: bytes
    ) -> None:
        if direction == "read" and message == _CERTIFICATE_REQUEST and tls in self._watched:
            self._watched[tls]()


def _other(way: Way) -> Way:
    return Way.DOWN if way is Way.UP else Way.UP


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be verified: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
