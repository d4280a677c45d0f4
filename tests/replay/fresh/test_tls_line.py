"""A request that nobody saw on its way, sent to a service that ends TLS itself, or does not."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kernel.helpers import needs_root
from relive.errors import TlsRefused
from relive.recording.certificates import begun, named, signed
from relive.recording.events import EventKind
from relive.replay.fresh.request import SentRequest
from relive.replay.fresh.sending import Sent, send

from .cases import event

pytestmark = needs_root

DATA = b"GET /a HTTP/1.1\r\nHost: shop.example:8443\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """What a service ends TLS with."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = signed(begun(named("shop"), named("shop"), key, days=1), key)
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


class Service:
    """Answers each connection; ``heard`` has what came within TLS, or without."""

    def __init__(self, context: ssl.SSLContext | None, answer: bytes = OK, *, handles: bool = True) -> None:
        self.heard: list[bytes] = []
        self.names: list[str | None] = []
        self.drain = SimpleNamespace(drain=lambda: None, run=_runs, events=[])
        self._answer, self._handles, self._context = answer, handles, context
        if context is not None:
            context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._answer_one(self.listener.accept()[0])

    def _answer_one(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
            with sock:
                self.heard.append(sock.recv(4096))
                if self._handles:
                    self.drain.events.append(event(EventKind.HANDLING_STARTED, 1))
                sock.sendall(self._answer)

    def asked(self, directory: Path, **known: Any) -> Sent:
        """What comes of the request."""
        (directory / "stderr").write_text("before\n")
        place = SimpleNamespace(log=lambda name: directory / name)
        request = SentRequest("GET", "/a", DATA, [], **known)
        with contextlib.closing(os.fdopen(os.open("/proc/self/ns/net", os.O_RDONLY))) as network:
            groups = SimpleNamespace(oom_kills=lambda: 0)
            sandbox = SimpleNamespace(
                root=os.getpid(), init=os.getpid(), network=network.fileno(), place=place, groups=groups
            )
            to = ("127.0.0.1", self.listener.getsockname()[1])
            return send(cast("Any", sandbox), cast("Any", self.drain), request, to, 5.0, None)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.listener.close()


async def _runs() -> None:
    """Nothing is in any ring."""


@contextlib.contextmanager
def service(*about: Any, **more: Any) -> Iterator[Service]:
    with contextlib.closing(Service(*about, **more)) as made:
        yield made


def test_who_turns_plain_http_away_and_speaks_tls_is_asked_within_that(
    ending: ssl.SSLContext, tmp_path: Path
) -> None:
    with service(ending) as there:
        sent = there.asked(tmp_path, may_be_encrypted=True)
        assert (sent.answer.status, sent.how, sent.is_encrypted) == (200, "", True)
        assert (there.heard, there.names) == ([DATA], ["shop.example"])
        assert sent.log_from == len("before\n")


def test_who_handles_it_or_speaks_no_tls_is_asked_once_as_is_one_that_was_seen(
    ending: ssl.SSLContext, tmp_path: Path
) -> None:
    with service(None, BAD) as there:
        sent = there.asked(tmp_path, may_be_encrypted=True)
        assert (sent.answer.status, there.heard) == (400, [DATA])
    with service(None, BAD, handles=False) as there:
        sent = there.asked(tmp_path, may_be_encrypted=True)
        assert (sent.answer.status, sent.is_encrypted, there.heard[0]) == (400, False, DATA)
    with service(ending) as there:
        assert there.asked(tmp_path).how == "the connection broke before the answer was whole"
        assert there.heard == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_wants_a_certificate_of_the_client_is_said(
    ending: ssl.SSLContext, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ending.verify_mode, ending.maximum_version = ssl.CERT_REQUIRED, version
    try:
        with service(ending) as there, pytest.raises(TlsRefused) as refused:
            there.asked(tmp_path, may_be_encrypted=True)
    finally:
        ending.verify_mode, ending.maximum_version = ssl.CERT_NONE, ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert "certificate" in str(refused.value.cause) or "handshake failure" in str(refused.value.cause)
    assert refused.value.remedy is not None and there.heard == []
