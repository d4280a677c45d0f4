"""Requests of HTTP/2 in clear are told apart by their streams; both ends are played by ``h2``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hpack import Encoder
from hyperframe.frame import HeadersFrame

from relive.proxies.ingress import _http2_streams
from relive.proxies.ingress._segments import ACK, FIN
from relive.recording.events import EventKind
from relive.recording.grpc import GrpcStatus
from relive.recording.http2 import parse_head

from .packet_scene import Scene, Talk

ASKED = [
    (":method", "POST"),
    (":path", "/p?a=b"),
    (":scheme", "http"),
    (":authority", "x"),
    ("accept", "*/*"),
]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, by_sights=True)
    yield made
    made.close()


class Ends:
    """A client and a service, and the connection on which what they say is seen in pieces of ``cut`` bytes."""

    def __init__(self, talk: Talk, cut: int = 1 << 14) -> None:
        self.talk, self.cut = talk, cut
        self.client = H2Connection(H2Configuration(client_side=True))
        self.service = H2Connection(H2Configuration(client_side=False))

    def begin(self) -> None:
        self.client.initiate_connection()
        self.service.initiate_connection()
        self.settle()

    def settle(self) -> None:
        """Carry over all that was said, until both are silent."""
        while True:
            up, down = self.client.data_to_send(), self.service.data_to_send()
            if not up and not down:
                return
            for at in range(0, len(up), self.cut):
                self.talk.put(self.talk.asks(up[at : at + self.cut]))
            for at in range(0, len(down), self.cut):
                self.talk.put(self.talk.tells(down[at : at + self.cut]))
            self.service.receive_data(up)
            self.client.receive_data(down)

    def ask(self, stream: int, body: bytes = b"") -> None:
        self.client.send_headers(stream, ASKED, end_stream=not body)
        if body:
            self.client.send_data(stream, body, end_stream=True)
        self.settle()

    def answer(self, stream: int, status: int, body: bytes = b"") -> None:
        self.service.send_headers(stream, [(":status", str(status)), ("server", "me")], end_stream=not body)
        if body:
            self.service.send_data(stream, body, end_stream=True)
        self.settle()


@pytest.mark.parametrize("cut", [7, 1 << 14])
def test_streams_side_by_side_are_requests_of_their_own(scene: Scene, cut: int) -> None:
    ends = Ends(scene.talk(), cut)
    ends.begin()
    ends.ask(1, b"first")
    ends.ask(3, b"second")
    ends.answer(3, 500, b"bad")
    ends.answer(1, 200, b"good")
    found = {one.number: one for one in scene.exchanges()}
    assert [(found[at].status, found[at].request_body(), found[at].answer_body()) for at in (1, 2)] == [
        (200, b"first", b"good"),
        (500, b"second", b"bad"),
    ]
    one = found[1]
    assert (one.method, one.target, one.is_http2, one.local_port) == ("POST", "/p?a=b", True, 40000)
    assert one.answer_headers == ((b"server", b"me"),)
    sent_again = [(name.decode(), value.decode()) for name, value in parse_head(one.request_head)]
    assert sorted(sent_again) == sorted(ASKED)
    assert [(told["op"], told["request"], told["status"]) for told in scene.hub.messages] == [
        ("answered", 2, 500)
    ]


def test_a_request_for_an_upgrade_is_answered_by_the_first_stream(scene: Scene) -> None:
    ends = Ends(scene.talk())
    settings = ends.client.initiate_upgrade_connection()
    assert settings is not None
    head = b"GET /u HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
    ends.talk.put(ends.talk.asks(head + settings + b"\r\n\r\n"))
    ends.service.initiate_upgrade_connection(settings)
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    ends.talk.put(ends.talk.tells(switched + ends.service.data_to_send()))
    ends.settle()
    ends.answer(1, 503, b"later")
    ends.ask(3)
    ends.answer(3, 204)
    one, other = scene.exchanges()
    assert (one.target, one.status, one.answer_body(), one.is_http2) == ("/u", 503, b"later", True)
    assert one.request_bytes().startswith(b"GET /u HTTP/2\r\n")
    assert (other.target, other.status) == ("/p?a=b", 204)


def test_how_streams_end_without_an_answer(scene: Scene) -> None:
    ends = Ends(scene.talk())
    ends.begin()
    for stream in (1, 3, 5):
        ends.ask(stream)
    assert [one["request"] for one in scene.table.open_requests()] == [1, 2, 3]
    ends.client.reset_stream(1)
    ends.service.reset_stream(3, ErrorCodes.INTERNAL_ERROR)
    ends.settle()
    ends.talk.put(ends.talk.tells(b"", FIN | ACK))
    found = {one.number: (one.ended.value, one.how) for one in scene.exchanges()}
    assert found == {1: ("abandoned", "reset"), 2: ("broken", "reset"), 3: ("broken", "closed")}
    assert [(told["op"], told["request"]) for told in scene.hub.messages] == [("broken", 2), ("broken", 3)]


def test_trailers_are_kept_and_interim_answers_are_none(scene: Scene) -> None:
    ends = Ends(scene.talk())
    ends.begin()
    ends.ask(1, b"asked")
    ends.service.send_headers(1, [(":status", "103"), ("link", "</a>")])
    ends.service.send_headers(1, [(":status", "200")])
    ends.service.send_data(1, b"body")
    ends.service.send_headers(1, [("grpc-status", "13")], end_stream=True)
    ends.settle()
    (one,) = scene.exchanges()
    assert (one.status, one.answer_body(), len(one.interim_heads)) == (200, b"body", 1)
    (ended,) = scene.events(EventKind.ANSWER_ENDED)
    assert ended.fields["trailers"] == [["grpc-status", "13"]]


@pytest.mark.parametrize(("code", "is_told"), [("13", True), ("5", False), ("0", False)])
@pytest.mark.parametrize("has_body", [True, False])
def test_a_call_of_grpc_that_the_service_failed_is_told(
    scene: Scene, code: str, *, is_told: bool, has_body: bool
) -> None:
    ends = Ends(scene.talk())
    ends.begin()
    ends.ask(1, b"asked")
    head = [(":status", "200"), ("content-type", "application/grpc+proto")]
    status = [("grpc-status", code), ("grpc-message", "no%20account")]
    if has_body:
        ends.service.send_headers(1, head)
        ends.service.send_data(1, b"body")
        ends.service.send_headers(1, status, end_stream=True)
    else:
        ends.service.send_headers(1, head + status, end_stream=True)
    ends.settle()
    (one,) = scene.exchanges()
    assert one.grpc == GrpcStatus(int(code))
    assert [(told["op"], told["grpc"]) for told in scene.hub.messages] == [("answered", 13)] * is_told


def test_what_cannot_be_read_is_bytes_from_there_on(scene: Scene) -> None:
    ends = Ends(scene.talk())
    ends.begin()
    ends.ask(1)
    ends.talk.put(ends.talk.tells(b"\0\0\1\1\4\0\0\0\1\xff"))  # a header block that HPACK does not have
    ends.talk.put(ends.talk.asks(b"more"))
    (one,) = scene.exchanges()
    assert (one.ended.value, one.how) == ("abandoned", "malformed")
    (told,) = scene.hub.messages
    assert told["op"] == "unframed"
    assert "HTTP/2 cannot be read" in told["text"]


def test_a_status_that_is_no_number_of_http_ends_nothing(scene: Scene) -> None:
    ends = Ends(scene.talk())
    ends.begin()
    ends.ask(1)
    head = Encoder().encode([(":status", "9" * 5000)])  # more digits than Python makes a number of
    ends.talk.put(ends.talk.tells(HeadersFrame(1, head, flags=["END_HEADERS"]).serialize()))
    ends.answer(1, 200)
    (one,) = scene.exchanges()
    assert one.status == 200


def test_more_streams_than_any_service_admits_are_bytes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http2_streams, "_STREAMS_MOST", 3)
    ends = Ends(scene.talk())
    ends.begin()
    for stream in (1, 3, 5):
        ends.ask(stream)
    ends.answer(3, 200)
    ends.ask(7)
    assert not scene.hub.messages
    for stream in (9, 11):
        ends.client.send_headers(stream, ASKED, end_stream=True)
    ends.settle()
    ends.ask(13)
    found = {one.number: one.ended.value for one in scene.exchanges()}
    assert found == {1: "abandoned", 2: "answered", 3: "abandoned", 4: "abandoned"}
    (told,) = scene.hub.messages
    assert told["op"] == "unframed"
    assert "3 streams" in told["text"]


def test_a_service_may_say_its_settings_before_its_client_speaks(scene: Scene) -> None:
    ends = Ends(scene.talk())
    ends.service.initiate_connection()
    first = ends.service.data_to_send()
    ends.talk.put(ends.talk.tells(first))
    ends.client.initiate_connection()
    ends.client.receive_data(first)
    ends.ask(1)
    ends.answer(1, 200)
    assert [one.status for one in scene.exchanges()] == [200]
