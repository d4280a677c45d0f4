"""A stub's end of a connection: the bytes that are said on it, also where the service speaks TLS.

TLS may begin with the first byte, or after the service has asked a PostgreSQL server for it, which the line agrees to: a session
sees neither. It is met with a certificate by the authority that the life's border had, which the service trusts; the name
in it is the one that the service asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from relive.proxies.egress.client_hello import HELLO_MOST, Hello, looks_like_hello, read_hello

if TYPE_CHECKING:  # `cryptography` takes its time to be imported
    from relive.proxies.egress.authority import Authority

__all__ = ["StubAuthority", "TlsTransport", "Transport"]

_READ = 1 << 16  # [bytes]
_POSTGRES_ASKS = bytes([0, 0, 0, 8, 4, 210, 22, 47])  # SSLRequest
_POSTGRES_AGREES = b"S"
_HTTP_2, _HTTP_1 = "h2", "http/1.1"


class Transport:
    """Plain bytes. ``sock`` does not block, and belongs to the line."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def receive(self) -> bytes:
        """What comes next; nothing when the service has ended its direction. Raises OSError when it broke the connection."""
        return await asyncio.get_running_loop().sock_recv(self.sock, _READ)

    async def send(self, data: bytes) -> None:
        """Send; raises OSError when the service has gone."""
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def end(self) -> None:
        """Say that nothing more comes, as one does before closing."""

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


class StubAuthority:
    """Certificates for whatever name a service asks for.

    Args:
        directory: of the life's authority.
        speaks_http2: what is spoken at the destination begins as HTTP/2 does.
    """

    def __init__(self, directory: Path, *, speaks_http2: bool = False) -> None:
        self._directory = directory
        self._preferred = _HTTP_2 if speaks_http2 else _HTTP_1
        self._authority: Authority | None = None

    def context_for(self, hello: Hello, address: str) -> ssl.SSLContext:
        """What to meet a service with that says this; raises OSError or ValueError without an authority."""
        from relive.proxies.egress.authority import Authority  # noqa: PLC0415
        from relive.recording.certificates import self_signed  # noqa: PLC0415

        if self._authority is None:
            self._authority = Authority.load(self._directory)
        protocol = self._preferred if self._preferred in hello.protocols else None
        return self._authority.context_for(self_signed(hello.name or address), protocol)


class TlsTransport(Transport):
    """As a line, and what is inside where the service begins TLS.

    Args:
        address: of the destination, which is its name where the service gives none.
    """

    def __init__(self, sock: socket.socket, trust: StubAuthority, address: str) -> None:
        super().__init__(sock)
        self._trust = trust
        self._address = address
        self._may_begin = True
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._sending = asyncio.Lock()

    async def receive(self) -> bytes:
        if self._tls is not None:
            return await self._hear_inside()
        data = await super().receive()
        if self._may_begin and data == _POSTGRES_ASKS:
            await super().send(_POSTGRES_AGREES)
            data = await super().receive()
        if data and self._may_begin and looks_like_hello(data):
            await self._begin(data)
            return await self._hear_inside()
        self._may_begin = False
        return data

    async def send(self, data: bytes) -> None:
        if self._tls is None:
            await super().send(data)
            return
        self._tls.write(data)
        await self._flush()

    async def end(self) -> None:
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # close_notify
            await self._flush()

    async def _begin(self, first: bytes) -> None:
        try:
            hello = read_hello(first)
            while hello is None and len(first) < HELLO_MOST:
                first += await self._more()
                hello = read_hello(first)
        except ValueError:
            hello = None
        if hello is None:
            raise ConnectionResetError("it began like TLS, and is none")
        context = self._trust.context_for(hello, self._address)
        tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(first)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                self._incoming.write(await self._more())
        await self._flush()
        self._tls = tls

    async def _hear_inside(self) -> bytes:
        assert self._tls is not None
        while True:
            try:
                return self._tls.read(_READ)
            except ssl.SSLWantReadError:
                await self._flush()
                data = await super().receive()
                if not data:
                    return b""
                self._incoming.write(data)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def _more(self) -> bytes:
        data = await super().receive()
        if not data:
            raise ConnectionResetError("it ended within the handshake of TLS")
        return data

    async def _flush(self) -> None:
        async with self._sending:  # two may have something to send, and a record must stay in one piece
            while data := self._outgoing.read():
                await super().send(data)
