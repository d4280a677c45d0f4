"""What a client and a service say to each other becomes the proxy's events when it is put together from packets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.proxies.ingress._segments import ACK, FIN, RST
from relive.proxies.ingress._sightings import read_crossed
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording

from .packet_scene import FAILED, GET, OK, Scene, Talk


@pytest.fixture(params=["C", "Python"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = Scene(tmp_path, by_sights=request.param == "C")
    yield made
    made.close()


def test_a_conversation_becomes_the_events_of_the_proxy(scene: Scene) -> None:
    talk = scene.talk()
    talk.exchange(b"POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    talk.put(talk.asks(b"", FIN | ACK))
    talk.put(talk.tells(b"", FIN | ACK))
    assert scene.kinds() == [
        "connection-opened", "request-started", "request-body", "request-ended",
        "answer-started", "answer-body", "answer-ended", "connection-closed",
    ]  # fmt: skip
    (one,) = scene.exchanges()
    assert (one.method, one.target, one.status) == ("POST", "/p", 200)
    assert one.request_bytes() == b"POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    assert (one.local_port, one.client) == (40000, "127.0.0.1:40000")
    assert scene.table.count == 0


def test_the_times_are_those_of_the_packets(scene: Scene) -> None:
    talk = scene.talk()
    talk.exchange()
    started, ended = scene.events(EventKind.REQUEST_STARTED, EventKind.ANSWER_ENDED)
    assert (ended.wall_ns, ended.wall_ns - started.wall_ns) == (scene.now, 1_000_000)
    assert ended.mono_ns - started.mono_ns == 1_000_000


def test_order_copies_and_other_cuts_make_no_difference(scene: Scene) -> None:
    talk = scene.talk()
    pieces = [talk.asks(GET[:5]), talk.asks(GET[5:9]), talk.asks(GET[9:])]
    for one in (pieces[0], pieces[2], pieces[0], pieces[2], pieces[1]):
        talk.put(one)
    talk.put(pieces[0]._replace(data=GET))  # all of it once more
    first, second = talk.tells(OK[:3]), talk.tells(OK[3:])
    talk.put(second)
    talk.put(first)
    (one,) = scene.exchanges()
    assert (one.request_head, one.ended.value, one.answer_body()) == (GET, "answered", b"ok")


def test_requests_in_one_segment_are_told_apart(scene: Scene) -> None:
    talk = scene.talk()
    talk.put(talk.asks(GET + GET))
    talk.put(talk.tells(OK + FAILED))
    assert [one.status for one in scene.exchanges()] == [200, 500]
    (told,) = scene.hub.messages
    assert (told["op"], told["request"], told["status"]) == ("answered", 2, 500)


@pytest.mark.parametrize(("flags", "how"), [(FIN | ACK, "closed"), (RST | ACK, "reset")])
def test_a_service_that_goes_away_breaks_what_it_was_asked(scene: Scene, flags: int, how: str) -> None:
    talk = scene.talk()
    talk.put(talk.asks(GET))
    talk.put(talk.tells(b"", flags))
    (told,) = scene.hub.messages
    assert (told["op"], told["request"], told["how"]) == ("broken", 1, how)


def test_a_client_that_goes_away_abandons_its_request(scene: Scene) -> None:
    talk = scene.talk()
    talk.put(talk.asks(GET))
    talk.put(talk.asks(b"", RST))
    assert scene.hub.messages == []
    assert [(one.ended.value, one.how) for one in scene.exchanges()] == [("abandoned", "reset")]


def test_an_answer_that_lasts_to_the_end_of_the_connection_is_whole_there(scene: Scene) -> None:
    talk = scene.talk()
    talk.exchange(GET, b"HTTP/1.0 200 OK\r\n\r\nall of")
    talk.put(talk.tells(b" it", FIN | ACK))
    assert [one.answer_body() for one in scene.exchanges()] == [b"all of it"]


def test_after_an_upgrade_both_ways_are_streams(scene: Scene) -> None:
    talk = scene.talk()
    talk.put(talk.asks(b"GET /w HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + b"early"))
    talk.put(talk.tells(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n" + b"down"))
    talk.put(talk.asks(b"late"))
    up = scene.events(EventKind.STREAM_TO_SERVICE)
    assert b"".join(one.data for one in up) == b"earlylate"
    assert [one.data for one in scene.events(EventKind.STREAM_TO_CLIENT)] == [b"down"]


@pytest.mark.parametrize(
    "first",
    [b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\x02\0", b"GET key\n"],
)
def test_what_is_not_http_is_recorded_as_bytes(scene: Scene, first: bytes) -> None:
    talk = scene.talk()
    talk.exchange(first, b"+PONG\r\n")
    talk.put(talk.asks(b"more", FIN | ACK))
    said = [
        (one.kind, one.data, bool(one.fields.get("ended")))
        for one in scene.events(EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT)
    ]
    assert said == [
        (EventKind.STREAM_TO_SERVICE, first, False),
        (EventKind.STREAM_TO_CLIENT, b"+PONG\r\n", False),
        (EventKind.STREAM_TO_SERVICE, b"more", False),
        (EventKind.STREAM_TO_SERVICE, b"", True),
    ]
    talk.put(talk.asks(b"", RST))
    (closed,) = scene.events(EventKind.CONNECTION_CLOSED)
    assert (closed.fields["unframed"], closed.fields["up_bytes"], closed.fields["down_bytes"]) == (
        True,
        len(first) + 4,
        7,
    )
    assert [one["op"] for one in scene.hub.messages] == ["unframed"]


def test_a_service_that_speaks_first_is_not_http(scene: Scene) -> None:
    talk = scene.talk()
    talk.put(talk.tells(b"220 mail\r\n"))
    talk.exchange(b"EHLO x\r\n", b"250 hello\r\n")
    assert scene.exchanges() == []
    assert scene.traffic.unframed == 1


def test_a_connection_that_stood_before_begins_with_its_next_request(scene: Scene) -> None:
    talk = scene.talk(begun=False)
    talk.put(talk.tells(b"rest of an answer"))
    talk.put(talk.asks(b"rest of a body"))
    talk.exchange()
    talk.exchange(GET, FAILED)
    assert [one.status for one in scene.exchanges()] == [200, 500]
    opened, missed, *_ = scene.events()
    assert opened.fields["from_middle"] and missed.fields["stood"]
    assert scene.traffic.gaps == 0
    idle = scene.talk(40001, begun=False)
    idle.exchange()
    assert len(scene.events(EventKind.NOTE)) == 1


STOOD = [b"*1\r\n$4\r\nPING\r\n", b"Q\0\0\0\x0bSELECT\0", b"\x81\x85abcdefghi", b"\x17\x03\x03\0\x05abcde"]


@pytest.mark.parametrize("said", STOOD)
def test_a_conversation_that_stood_before_is_recorded_from_the_next_turn_on(
    scene: Scene, said: bytes
) -> None:
    """GIVEN a connection without HTTP that is met amid what its client says
    WHEN the service has answered, and the client says something to that
    THEN what is said from there on is recorded, that it began in the middle, and once that requests are not told apart.
    """
    talk = scene.talk(begun=False)
    talk.put(talk.asks(b"\0rest"))
    talk.put(talk.tells(b"+OK\r\n"))
    talk.put(talk.tells(b"+more\r\n"))
    for number in range(3):
        talk.exchange(said, b"answer %d" % number)
    talk.put(talk.asks(b"", FIN | ACK))
    talk.put(talk.tells(b"", FIN | ACK))
    (opened,) = scene.events(EventKind.CONNECTION_OPENED)
    assert opened.fields["from_middle"]
    up, down = EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT
    turns = [turn for number in range(3) for turn in ((up, said), (down, b"answer %d" % number))]
    assert [(one.kind, one.data) for one in scene.events(up, down)] == [*turns, (up, b"")]
    assert (scene.traffic.unframed, scene.table.gaps, scene.table.count) == (1, 0, 0)
    missed, unframed = scene.events(EventKind.NOTE)
    assert missed.fields["stood"] and missed.connection == opened.connection
    assert unframed.fields["text"].startswith("the connection stood before it was recorded: ")
    assert Exchanges(Recording(scene.directory)).gaps_in(0, 1 << 60) == 1


def test_what_may_be_amid_a_message_of_http_is_no_conversation(scene: Scene) -> None:
    """GIVEN a connection that stood before, THEN bytes that the client does not say to all that it was told begin none."""
    talk = scene.talk(begun=False)
    body = b"\0a body\r\n" * 3
    talk.put(talk.asks(body))
    talk.put(talk.tells(b"HTTP/1.1 100 Continue\r\n\r\n"))
    talk.put(talk.asks(body))
    talk.put(talk.tells(b"the end of an answer"))
    talk.put(talk.asks(body))
    assert scene.events() == []
    other = scene.talk(40001, begun=False)
    unseen = other.down
    other.put(other.tells(b"amid an answer"))
    other.put(other.asks(body)._replace(acknowledged=unseen))
    other.put(other.asks(body))
    assert scene.events() == []
    talk.exchange()
    other.exchange()
    assert [one.status for one in scene.exchanges()] == [200, 200]


def test_a_commit_holds_what_it_has_of_a_conversation_that_stood_before(scene: Scene) -> None:
    talk = scene.talk(begun=False)
    talk.put(talk.tells(b"+OK\r\n"))
    first, second = talk.asks(b"\1first\n"), talk.asks(b"\2second\n")
    scene.table.limit({talk.ends: (talk.up - len(second.data), talk.down)})
    talk.put(first)
    talk.put(second)
    assert [one.data for one in scene.events(EventKind.STREAM_TO_SERVICE)] == [first.data]
    scene.table.unlimit()
    assert [one.data for one in scene.events(EventKind.STREAM_TO_SERVICE)] == [first.data, second.data]


def test_an_answer_whose_request_was_not_seen_is_given_to_no_other(scene: Scene) -> None:
    talk = scene.talk(begun=False)
    talk.put(talk.asks(GET))
    talk.put(talk.tells(b"the rest of an answer to one before"))
    talk.put(talk.tells(OK))
    talk.exchange(b"GET /next HTTP/1.1\r\n\r\n", FAILED)
    ended = [(one.target, one.ended.value, one.status) for one in scene.exchanges()]
    assert ended == [("/a", "lost", None), ("/next", "answered", 500)]


def test_missing_bytes_are_said_and_the_connection_begins_anew_behind_them(scene: Scene) -> None:
    talk = scene.talk()
    talk.exchange()
    talk.asks(b"POST /gone HTTP/1.1\r\nContent-Length: 0\r\n\r\n")  # nobody saw it
    talk.put(talk.tells(OK))  # acknowledges it
    talk.exchange(b"GET /next HTTP/1.1\r\n\r\n", FAILED)
    assert [(one.target, one.status) for one in scene.exchanges()] == [("/a", 200), ("/next", 500)]
    (note,) = scene.events(EventKind.NOTE)
    assert note.fields["about"] == "capture"
    assert Exchanges(Recording(scene.directory)).gaps_in(0, 1 << 60) == 1
    assert [one["op"] for one in scene.hub.messages] == ["answered"]  # nothing is called broken that was not


def test_lost_packets_end_what_was_under_way_and_nothing_else(scene: Scene) -> None:
    idle, busy = scene.talk(40000), scene.talk(40001)
    idle.exchange()
    busy.put(busy.asks(GET))
    scene.table.lose(7)
    idle.exchange()
    busy.put(busy.tells(OK))
    assert sorted(one.ended.value for one in scene.exchanges()) == ["answered", "answered", "lost"]
    (note,) = scene.events(EventKind.NOTE)
    assert note.fields["lost"] == 7


def test_another_connection_of_the_same_ends_is_another_one(scene: Scene) -> None:
    scene.talk(up=100).exchange()
    scene.talk(up=5000, down=70000).exchange()
    assert [one.connection for one in scene.exchanges()] == [1, 2]


def test_another_address_of_that_port_is_not_the_services(scene: Scene) -> None:
    talk = scene.talk(begun=False)
    talk.ends = talk.ends._replace(service=socket.inet_aton("127.0.0.2"))
    talk.exchange()
    assert scene.events() == []


class TestCommit:
    """What a commit has of each connection lies before its place, and nothing else."""

    def place(self, scene: Scene, *numbers: tuple[Talk, int, int]) -> int:
        scene.table.limit(
            read_crossed(
                [["127.0.0.1", talk.ends.client_port, "127.0.0.1", up, down] for talk, up, down in numbers]
            )
        )
        return scene.traffic.writer.last_seq

    def test_a_request_that_came_after_the_commit_had_its_connection_lies_behind_it(
        self, scene: Scene
    ) -> None:
        talk = scene.talk()
        talk.exchange()
        self.place(scene, (talk, talk.up, talk.down))
        talk.put(talk.asks(GET))
        cursor = scene.traffic.writer.last_seq
        scene.table.unlimit()
        talk.put(talk.tells(OK))
        exchanges = Exchanges(Recording(scene.directory))
        scene.traffic.observed.flush_all()
        assert [one.number for one in exchanges.begun_in(cursor, 1 << 60)] == [2]
        assert exchanges.open_at(cursor) == []

    def test_of_a_body_it_has_the_bytes_that_had_come(self, scene: Scene) -> None:
        talk = scene.talk()
        talk.put(talk.asks(b"POST /p HTTP/1.1\r\nContent-Length: 6\r\n\r\nab"))
        has = talk.up
        self.place(scene, (talk, has + 1, talk.down))
        talk.put(talk.asks(b"cdef"))
        cursor = scene.traffic.writer.last_seq
        assert [one["request"] for one in scene.table.open_requests()] == [1]
        scene.table.unlimit()
        talk.put(talk.tells(OK))
        (one,) = scene.exchanges()
        assert one.request_body_after(cursor) == b"def"
        assert one.request_bytes().endswith(b"\r\n\r\nabcdef")

    def test_what_it_had_written_and_not_sent_lies_before_it(self, scene: Scene) -> None:
        talk = scene.talk()
        talk.put(talk.asks(GET))
        talk.put(talk.tells(OK[:-2]))
        self.place(scene, (talk, talk.up, talk.down + 2))
        talk.put(talk.asks(GET))
        assert scene.table.observe_written(talk.tells(OK[-2:]))  # acknowledges what waits
        assert not scene.table.observe_written(talk.tells(OK))
        cursor = scene.traffic.writer.last_seq
        scene.table.unlimit()
        scene.traffic.observed.flush_all()
        exchanges = Exchanges(Recording(scene.directory))
        assert exchanges.by_number(1).ended_seq <= cursor
        assert [one.number for one in exchanges.begun_in(cursor, 1 << 60)] == [2]

    def test_a_connection_that_it_does_not_have_and_that_was_served_was_over(self, scene: Scene) -> None:
        self.place(scene)
        talk = scene.talk()
        talk.exchange()
        assert [one.ended.value for one in scene.exchanges()] == ["answered"]

    @pytest.mark.parametrize("request_bytes", [GET, b"PURGE /a HTTP/1.1\r\n\r\n"])
    def test_what_waits_for_its_place_keeps_its_time(self, scene: Scene, request_bytes: bytes) -> None:
        talk = scene.talk()
        talk.exchange()
        self.place(scene, (talk, talk.up, talk.down))
        talk.put(talk.asks(request_bytes))
        came = scene.now
        scene.talk(40001).put(talk.asks(b""))  # of another connection, later
        scene.table.unlimit()
        talk.put(talk.tells(OK))
        started, ended = scene.events(EventKind.REQUEST_STARTED, EventKind.ANSWER_ENDED)[-2:]
        assert (started.wall_ns, ended.wall_ns) == (came, scene.now)
        assert ended.mono_ns - started.mono_ns == scene.now - came

    def test_a_request_on_a_connection_that_was_over_by_the_commit_keeps_its_time(self, scene: Scene) -> None:
        self.place(scene)
        talk = scene.talk()
        talk.put(talk.asks(GET))
        came = scene.now
        talk.put(talk.tells(FAILED))
        started, ended = scene.events(EventKind.REQUEST_STARTED, EventKind.ANSWER_ENDED)
        assert (started.wall_ns, ended.wall_ns) == (came, came + 1_000_000)

    def test_a_connection_that_the_service_had_not_taken_lies_behind_it(self, scene: Scene) -> None:
        talk = scene.talk()
        self.place(scene)
        talk.put(talk.asks(GET))
        assert scene.exchanges() == []
        scene.table.unlimit()
        assert [one.target for one in scene.exchanges()] == ["/a"]

    def test_a_request_of_which_it_has_half_a_head_is_sent_by_another_connection(self, scene: Scene) -> None:
        talk = scene.talk()
        talk.put(talk.asks(GET[:9]))
        self.place(scene, (talk, talk.up, talk.down))
        scene.table.unlimit()
        talk.put(talk.asks(GET[9:]))
        talk.put(talk.tells(OK))
        talk.exchange()
        assert [one.local_port for one in scene.exchanges()] == [None, 40000]

    def test_it_knows_the_place_of_a_connection_that_began_in_the_middle(self, scene: Scene) -> None:
        talk = scene.talk(begun=False)
        talk.exchange()
        self.place(scene, (talk, talk.up, talk.down))
        talk.put(talk.asks(GET))
        assert len(scene.exchanges()) == 1
        scene.table.unlimit()
        assert len(scene.exchanges()) == 2


@pytest.mark.parametrize(
    "told", [None, [1], [["x", 1, "127.0.0.1", 0, 0]], [["127.0.0.1", 1, "::1", "y", 0]]]
)
def test_what_no_agent_says_is_refused(told: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_crossed(told)
