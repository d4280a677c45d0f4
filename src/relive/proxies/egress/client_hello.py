"""The first message of a TLS client, read without answering it (RFC 8446 4.1.2, RFC 6066 3, RFC 7301)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HELLO_MOST", "Hello", "looks_like_hello", "read_hello"]

HELLO_MOST = 64 << 10  # [bytes] of what is waited for before it is taken for something else
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _PROTOCOLS = 0, 16
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client asks for.

    Attributes:
        name: of the server, None where the client does not say it.
        protocols: that it offers (ALPN), the best first.
    """

    name: str | None
    protocols: tuple[str, ...]


def looks_like_hello(data: bytes) -> bool:
    """A TLS client may have begun so; true as well while too little is there to say."""
    return data[:2] == b"\x16\x03"[: len(data)] and (len(data) < 6 or data[5] == _CLIENT_HELLO)


def read_hello(data: bytes) -> Hello | None:
    """Read it; None when more has to come.

    Raises:
        ValueError: it is none.
    """
    message, place = b"", 0
    while len(message) < _MESSAGE_HEADER or len(message) < _MESSAGE_HEADER + int.from_bytes(
        message[1:4], "big"
    ):
        header = data[place : place + _RECORD_HEADER]
        if len(header) < _RECORD_HEADER:
            return None
        if header[0] != _HANDSHAKE or header[1] != 3:
            raise ValueError("no TLS handshake")
        size = int.from_bytes(header[3:5], "big")
        part = data[place + _RECORD_HEADER : place + _RECORD_HEADER + size]
        if len(part) < size:
            return None
        if not part:
            raise ValueError("an empty record")
        message, place = message + part, place + _RECORD_HEADER + size
    if message[0] != _CLIENT_HELLO:
        raise ValueError("no client hello")
    try:
        return _read_message(message[_MESSAGE_HEADER:])
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("a damaged client hello") from error


def _read_message(body: bytes) -> Hello:
    place = 2 + 32  # version, random
    place += 1 + body[place]  # session
    place += 2 + int.from_bytes(body[place : place + 2], "big")  # ciphers
    place += 1 + body[place]  # compression
    end = place + 2 + int.from_bytes(body[place : place + 2], "big")
    place += 2
    name: str | None = None
    protocols: list[str] = []
    while place + 4 <= min(end, len(body)):
        kind = int.from_bytes(body[place : place + 2], "big")
        size = int.from_bytes(body[place + 2 : place + 4], "big")
        value = body[place + 4 : place + 4 + size]
        if kind == _SERVER_NAME and len(value) > 5 and value[2] == 0:
            name = value[5 : 5 + int.from_bytes(value[3:5], "big")].decode("ascii")
        elif kind == _PROTOCOLS:
            at = 2
            while at < len(value):
                protocols.append(value[at + 1 : at + 1 + value[at]].decode("ascii"))
                at += 1 + value[at]
        place += 4 + size
    return Hello(name, tuple(protocols))
