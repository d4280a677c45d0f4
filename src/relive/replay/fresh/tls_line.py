"""A connection on which the service itself ends TLS, for who speaks HTTP over a plain socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass, field

__all__ = ["TlsLine"]

_HANDSHAKE_LIMIT = 5.0  # [s]
_READ = 1 << 16  # [bytes]


@dataclass(slots=True)
class TlsLine:
    """Belongs to one event loop; ``close`` it.

    Attributes:
        sock: what is said inside, without blocking. It ends when the service's side ends.
        refusal: why the service wanted no TLS of this kind, such as for want of a certificate; None: it has not said so.
    """

    sock: socket.socket
    refusal: str | None = None
    _carrying: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def over(cls, sock: socket.socket, name: str) -> TlsLine | None:
        """One over a connected socket, which it takes; None: the service speaks no TLS. No certificate is checked.

        Args:
            name: that of the service (SNI); empty: none is told.
        """
        try:
            heard, said = await asyncio.open_connection(
                sock=sock,
                ssl=_undemanding(),
                server_hostname=name,
                ssl_handshake_timeout=_HANDSHAKE_LIMIT,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is one
            sock.close()
            return cls(_ended(), _refusal_in(error)) if _refusal_in(error) else None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        inner_heard, inner_said = await asyncio.open_connection(sock=theirs)
        line = cls(ours)
        line._carrying = [
            asyncio.create_task(line._carry(heard, inner_said)),
            asyncio.create_task(line._carry(inner_heard, said)),
        ]
        return line

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(_READ):
                to.write(data)
                await to.drain()
        except OSError as error:
            self.refusal = self.refusal or _refusal_in(error)
        finally:
            to.close()

    async def close(self) -> None:
        """End what carries. ``sock`` is its user's."""
        for task in self._carrying:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._carrying, return_exceptions=True)


def _undemanding() -> ssl.SSLContext:
    """The service is one's own, in a sealed sandbox, and may be old."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _refusal_in(error: OSError | TimeoutError) -> str | None:
    """What a service says that speaks TLS; None: it said nothing of the kind."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return reason.replace("_", " ").lower() if "ALERT" in reason else None


def _ended() -> socket.socket:
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.setblocking(False)
    return ours
