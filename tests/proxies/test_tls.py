"""TLS at the border: opened where the service trusts the capsule's authority, passed on as it is where not."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel.helpers import needs_root
from proxies.test_recorder import Server, echo, exactly
from relive.proxies.egress.authority import Authority
from relive.recording.dialogues import Tls, Way
from support.bordered import Bordered
from support.certificates import TestAuthority
from support.waiting import eventually

pytestmark = needs_root
_names = (f"name-{number}.test" for number in itertools.count())
_POSTGRES_ASKS = bytes([0, 0, 0, 8, 4, 210, 22, 47])


class Scene:
    """A border whose recorder trusts one authority, ``public``, and opens TLS with another, ``own``."""

    def __init__(self, directory: Path) -> None:
        self.public = TestAuthority(directory, "public")
        self.private = TestAuthority(directory, "private")
        self.own = Authority.make(directory / "authority", "test")
        self.border = Bordered(directory)
        self.options = ("--authority", str(directory / "authority"))
        self.environment = {"SSL_CERT_FILE": str(self.public.path), "SSL_CERT_DIR": "/nonexistent"}
        self.border.start(*self.options, **self.environment)

    def trusting(self, *more: bytes) -> ssl.SSLContext:
        """A client's context as a service in the capsule has it."""
        pems = [self.own.certificate, self.public.pem, *more]
        return ssl.create_default_context(cadata="".join(pem.decode() for pem in pems))

    def connect(
        self, context: ssl.SSLContext, destination: tuple[str, int], name: str
    ) -> tuple[ssl.SSLSocket, tuple[str, int]]:
        sock = self.border.connect(destination)
        origin = sock.getsockname()
        try:
            return context.wrap_socket(sock, server_hostname=name), origin
        except BaseException:
            sock.close()
            raise


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("tls"))
    yield scene
    scene.border.close()


def tls_echo(context: ssl.SSLContext) -> Server:
    def serve(sock: socket.socket) -> None:
        try:
            with context.wrap_socket(sock, server_side=True) as tls:
                echo(tls)
                tls.unwrap()
        except (ssl.SSLError, OSError):
            pass  # the test sees what becomes of it at the other end

    return Server(serve)


def test_what_is_inside_is_recorded_where_the_service_trusts_the_authority(scene):
    name = next(_names)
    with tls_echo(scene.public.server(name)) as server:
        sock, origin = scene.connect(scene.trusting(), server.name, name)
        with sock:
            issuer = dict(pair[0] for pair in sock.getpeercert()["issuer"])
            assert issuer["commonName"] == "Relive, capsule test"
            for said in (b"secret question", b"x" * 300_000):
                sock.sendall(said)
                assert exactly(sock, len(said)) == said
            sock.unwrap()
    dialogue = eventually(
        lambda: (d := scene.border.dialogue(origin)) and len(d.endings) == 2 and d, "both have ended"
    )
    assert dialogue.tls is Tls.OPENED
    assert dialogue.text(Way.UP) == dialogue.text(Way.DOWN) == b"secret question" + b"x" * 300_000
    assert {end.how for end in dialogue.endings.values()} == {"closed"}
    assert (dialogue.up_base, dialogue.down_base) == (None, None)  # they would count encrypted bytes


def test_the_protocol_that_the_server_chooses_is_the_services(scene):
    name = next(_names)
    context = scene.public.server(name)
    context.set_alpn_protocols(["http/1.1"])
    client = scene.trusting()
    client.set_alpn_protocols(["h2", "http/1.1"])
    with tls_echo(context) as server:
        sock, _ = scene.connect(client, server.name, name)
        with sock:
            assert sock.selected_alpn_protocol() == "http/1.1"


def test_a_service_that_does_not_trust_the_authority_is_left_alone_from_the_second_time_on(scene):
    name = next(_names)
    with tls_echo(scene.public.server(name)) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            scene.connect(scene.public.client(), server.name, name)
        eventually(
            lambda: [note for note in scene.border.notes() if name in note.get("name", "")], "it is noted"
        )
        sock, origin = scene.connect(scene.public.client(), server.name, name)
        with sock:
            sock.sendall(b"private")
            assert exactly(sock, 7) == b"private"
            dialogue = scene.border.dialogue(origin)
        assert dialogue.tls is Tls.CLOSED
        assert b"private" not in dialogue.text(Way.UP) and dialogue.text(Way.UP)[:2] == b"\x16\x03"
        assert dialogue.up_base is not None


def test_a_certificate_that_the_system_does_not_trust_is_the_services_to_judge(scene):
    """One service trusts it, another does not: each has from the first connection what it had without the recorder."""
    name = next(_names)
    with tls_echo(scene.private.server(name)) as server:
        sock, origin = scene.connect(scene.private.client(), server.name, name)
        with sock:
            sock.sendall(b"x")
            assert exactly(sock, 1) == b"x"
            assert scene.border.dialogue(origin).tls is Tls.CLOSED
        with pytest.raises(ssl.SSLCertVerificationError):
            scene.connect(scene.trusting(), server.name, name)
    (note,) = [note for note in scene.border.notes() if name in note.get("name", "")]
    assert "cannot be verified" in note["text"]


def test_a_wrong_name_is_wrong_for_the_service(scene):
    with (
        tls_echo(scene.public.server("other.test")) as server,
        pytest.raises(ssl.SSLCertVerificationError, match="mismatch"),
    ):
        scene.connect(scene.trusting(), server.name, next(_names))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_wants_a_certificate_gets_the_services(scene, version):
    name = next(_names)
    context = scene.public.server(name, asks=scene.private)
    context.maximum_version = version
    client = scene.trusting()
    client.load_cert_chain(scene.private.issue("service.test"))
    with tls_echo(context) as server:
        sock, origin = scene.connect(client, server.name, name)
        with sock:
            sock.sendall(b"x")
            assert exactly(sock, 1) == b"x"
            assert scene.border.dialogue(origin).tls is Tls.CLOSED


def test_tls_that_begins_when_postgres_has_agreed_is_opened(scene):
    name = next(_names)
    context = scene.public.server(name)

    def serve(sock: socket.socket) -> None:
        assert exactly(sock, 8) == _POSTGRES_ASKS
        sock.sendall(b"S")
        with context.wrap_socket(sock, server_side=True) as tls:
            echo(tls)

    with Server(serve) as server, scene.border.connect(server.name) as sock:
        origin = sock.getsockname()
        sock.sendall(_POSTGRES_ASKS)
        assert exactly(sock, 1) == b"S"
        with scene.trusting().wrap_socket(sock, server_hostname=name) as tls:
            tls.sendall(b"startup")
            assert exactly(tls, 7) == b"startup"
        dialogue = scene.border.dialogue(origin)
    assert dialogue.tls is Tls.OPENED
    assert (dialogue.text(Way.UP), dialogue.text(Way.DOWN)) == (_POSTGRES_ASKS + b"startup", b"Sstartup")


@pytest.mark.parametrize("agrees", [True, False])
def test_postgres_with_a_certificate_of_its_own_or_without_tls_goes_on_as_it_is(scene, agrees):
    name = next(_names)
    context = scene.private.server(name)

    def serve(sock: socket.socket) -> None:
        assert exactly(sock, 8) == _POSTGRES_ASKS
        sock.sendall(b"S" if agrees else b"N")
        if agrees:
            try:
                with context.wrap_socket(sock, server_side=True) as tls:
                    echo(tls)
            except OSError:
                pass  # the recorder's own try
        else:
            echo(sock)

    with Server(serve) as server, scene.border.connect(server.name) as sock:
        origin = sock.getsockname()
        sock.sendall(_POSTGRES_ASKS)
        assert exactly(sock, 1) == (b"S" if agrees else b"N")
        end = scene.private.client().wrap_socket(sock, server_hostname=name) if agrees else sock
        with end:
            end.sendall(b"startup")
            assert exactly(end, 7) == b"startup"
            dialogue = scene.border.dialogue(origin)
    assert dialogue.tls is (Tls.CLOSED if agrees else None)
    assert dialogue.text(Way.UP)[:8] == _POSTGRES_ASKS
    assert (b"startup" in dialogue.text(Way.UP)) is not agrees


def test_what_is_not_opened_is_remembered_by_the_next_recorder(scene):
    name = next(_names)
    with tls_echo(scene.private.server(name)) as server:
        scene.connect(scene.private.client(), server.name, name)[0].close()
        scene.border.end()
        scene.border.start(*scene.options, **scene.environment)
        before = len(server.peers)
        scene.connect(scene.private.client(), server.name, name)[0].close()
        assert len(server.peers) == before + 1, "the recorder has not tried it again"


def test_bytes_that_only_begin_like_tls_pass(scene):
    for said in (b"\x16\x03", b"\x16\x03\x01\x00\x05\x01junk", b"\x16\x03\x01\xff\xff\x02" + b"y" * 100_000):
        with Server(echo) as server, scene.border.connect(server.name) as sock:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            assert exactly(sock, len(said)) == said


def test_many_at_once(scene):
    name = next(_names)
    with tls_echo(scene.public.server(name)) as server:

        def talk(number: int) -> Tls | None:
            sock, origin = scene.connect(scene.trusting(), server.name, name)
            with sock:
                said = f"{number}:".encode() * 3000
                sock.sendall(said)
                assert exactly(sock, len(said)) == said
                return scene.border.dialogue(origin).tls

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(talk, range(20))) == [Tls.OPENED] * 20
