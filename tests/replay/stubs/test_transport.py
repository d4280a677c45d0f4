"""A service that speaks TLS is met by an authority that it trusts, and hears what was inside."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.protocols.session import Close, Send, Session
from relive.proxies.egress.authority import Authority
from relive.replay.stubs.conversation import Conversation
from relive.replay.stubs.speed import parse_speed
from relive.replay.stubs.transport import StubAuthority, TlsTransport

from .sealed import Script

_ASKS = bytes([0, 0, 0, 8, 4, 210, 22, 47])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "authority", "test")


def met(
    authority: Authority, session: Session, client: Callable[[socket.socket], None], **facts: bool
) -> list[str]:
    """Let a client talk, in a thread, with a conversation over a line that may become TLS; returns its faults."""
    faults: list[str] = []
    failed: list[BaseException] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        try:
            with socket.create_connection(listener.getsockname(), timeout=20) as sock:
                client(sock)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    stub = listener.accept()[0]
    stub.setblocking(False)
    listener.close()
    trust = StubAuthority(authority._directory, **facts)
    line = TlsTransport(stub, trust, "10.0.0.5")
    asyncio.run(asyncio.wait_for(Conversation(line, session, parse_speed("max"), faults.append).run([]), 20))
    thread.join()
    if failed:
        raise failed[0]
    return faults


def trusting(authority: Authority, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


@pytest.mark.parametrize("name", ["api.example.com", "10.0.0.5"])
def test_tls_from_the_first_byte(authority: Authority, name: str) -> None:
    """The certificate is of the name that the service asks for, or of the address; a long answer comes whole."""
    session = Script({b"one": [Send(b"x" * 300_000), Send(b"1"), Close()]})

    def client(sock: socket.socket) -> None:
        with trusting(authority, "h2", "http/1.1").wrap_socket(sock, server_hostname=name) as tls:
            assert tls.selected_alpn_protocol() == "http/1.1"
            tls.sendall(b"one\n")
            heard = b""
            while data := tls.recv(1 << 16):
                heard += data
            assert heard == b"x" * 300_000 + b"1"

    assert met(authority, session, client) == [] and session.fed == b"one\n"


def test_http2_is_agreed_on_where_it_was_spoken(authority: Authority) -> None:
    def client(sock: socket.socket) -> None:
        with trusting(authority, "h2", "http/1.1").wrap_socket(sock, server_hostname="a") as tls:
            assert tls.selected_alpn_protocol() == "h2"

    met(authority, Script({}), client, speaks_http2=True)


def test_tls_after_a_postgresql_client_has_asked_for_it(authority: Authority) -> None:
    session = Script({b"startup": [Send(b"hello, inside"), Close()]})

    def client(sock: socket.socket) -> None:
        sock.sendall(_ASKS)
        assert sock.recv(1) == b"S"
        with trusting(authority).wrap_socket(sock, server_hostname="db") as tls:
            tls.sendall(b"startup\n")
            assert tls.recv(99) == b"hello, inside"

    assert met(authority, session, client) == [] and session.fed == b"startup\n"


def test_without_tls_it_is_a_line_like_any_other(authority: Authority) -> None:
    def client(sock: socket.socket) -> None:
        sock.sendall(b"one\n")
        assert sock.recv(9) == b"1"

    assert met(authority, Script({b"one": [Send(b"1"), Close()]}), client) == []


def test_a_service_that_does_not_trust_it_is_no_fault(authority: Authority) -> None:
    def client(sock: socket.socket) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(sock, server_hostname="a")

    assert met(authority, Script({}), client) == []


def test_junk_that_begins_like_tls_ends_the_connection(authority: Authority) -> None:
    def client(sock: socket.socket) -> None:
        sock.sendall(b"\x16\x03\x01\x00\x05\x01\0\0\1j")
        assert sock.recv(99) == b""

    assert met(authority, Script({}), client) == []
