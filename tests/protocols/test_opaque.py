"""Protocols that are not understood: turns of direction, the very bytes."""

from __future__ import annotations

import socket
import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.answering import answering, bytes_of
from protocols.continuing import assert_it_continues_everywhere
from protocols.recording import recording
from protocols.scripted import dialogue
from relive.protocols.call import CallEnd
from relive.protocols.opaque import Plain
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.session import Close, Reset, Resume, Send
from relive.recording.dialogues import Way
from relive.recording.events import EventKind

PLAIN = Plain()
UP, DOWN = Way.UP, Way.DOWN
AT = ("10.0.0.7", 25)
SMTP = [
    (DOWN, b"220 mail\r\n"),
    (UP, b"HELO me\r\n"),
    (DOWN, b"250 "),
    (DOWN, b"hello\r\n"),
    (UP, b"DATA\r\n"),
    (UP, b"text\r\n.\r\n"),
    (DOWN, b"250 taken\r\n"),
    (UP, b"QUIT\r\n"),
    (DOWN, b"221 bye\r\n"),
]


def open_to(*dialogues: Any) -> tuple[Any, list[PoolMatch], Pool]:
    found: list[PoolMatch] = []
    pool = Pool([call for one in dialogues for call in PLAIN.calls(one)], on_found=found.append)
    return PLAIN.open(pool, 1, to=AT), found, pool


def test_turns_are_calls():
    calls = PLAIN.calls(dialogue(SMTP, to=AT))
    assert [call.extra["question"] for call in calls] == [
        b"",
        b"HELO me\r\n",
        b"DATA\r\ntext\r\n.\r\n",
        b"QUIT\r\n",
    ]
    assert {call.kind for call in calls} == {EventKind.DIALOGUE_UP}
    assert calls[1].asked == {"server": "10.0.0.7:25", "data": {"$": ["utf8", "HELO me\r\n"]}}
    assert calls[1].answer == {"data": {"$": ["utf8", "250 hello\r\n"]}}
    assert [piece.data for piece in calls[1].pieces] == [b"250 ", b"hello\r\n"]
    assert [piece.after_ns for piece in calls[1].pieces] == [10_000_000, 10_000_000]


def test_who_greets_first_greets_again():
    session, found, pool = open_to(dialogue(SMTP, to=AT, closed=DOWN))
    assert session.begin() == [Send(b"220 mail\r\n", 10_000_000)]
    said = b"".join(data for way, data in SMTP if way is UP)
    answers = b"".join(bytes_of(session.feed(said[at : at + 1])) for at in range(len(said) - 1))
    last = session.feed(said[-1:])
    assert answers + bytes_of(last) == b"".join(data for way, data in SMTP[1:] if way is DOWN)
    assert isinstance(last[-1], Close)
    assert [one.is_miss for one in found] == [False] * 4
    assert pool.left() == []


def test_a_greeting_is_given_to_each_that_connects():
    _, _, pool = open_to(dialogue(SMTP, to=AT))
    greetings = [bytes_of(PLAIN.open(pool, number, to=AT).begin()) for number in (1, 2)]
    assert greetings == [b"220 mail\r\n"] * 2


def test_who_is_not_greeted_is_not_greeted():
    session, _, _ = open_to(dialogue([(UP, b"a"), (DOWN, b"b")], to=AT))
    assert session.begin() == []


def test_it_continues_at_every_byte():
    assert_it_continues_everywhere(PLAIN, dialogue(SMTP, to=AT, closed=DOWN))


def test_another_question_breaks_the_connection_and_tells_what_comes_nearest():
    session, found, _ = open_to(dialogue(SMTP, to=AT))
    assert session.feed(b"HELO me") == []
    assert [type(act) for act in session.feed(b"!")] == [Reset]
    assert found[-1].is_miss
    assert found[-1].differs == ("$.data.$[1]",)
    assert session.feed(b"more") == []


def test_the_longest_question_that_fits_is_meant():
    session, _, _ = open_to(
        dialogue([(UP, b"get a"), (DOWN, b"short")], to=AT),
        dialogue([(UP, b"get ab"), (DOWN, b"long")], to=AT),
    )
    assert bytes_of(session.feed(b"get ab")) == b"long"


def test_to_one_who_never_answers_everything_may_be_said():
    session, found, pool = open_to(dialogue([(UP, b"log line 1\n")], to=AT))
    assert session.feed(b"another line at 17:00\n") == []
    assert session.feed(b"and another\n") == []
    other = PLAIN.open(pool, 2, to=AT)
    assert other.feed(b"a new connection to it\n") == []
    assert [one.is_miss for one in found] == [False, False]


def test_who_once_did_not_answer_is_no_such_one():
    answered = dialogue([(UP, b"a"), (DOWN, b"b")], to=AT)
    session, found, _ = open_to(dialogue([(UP, b"question")], to=AT, closed=UP), answered)
    assert [type(act) for act in session.feed(b"other words")] == [Reset]
    assert found[0].is_miss


def test_others_are_not_asked_for_what_was_said_to_this_one():
    _, _, pool = open_to(dialogue([(UP, b"a"), (DOWN, b"b")], to=AT))
    session = PLAIN.open(pool, 2, to=("10.0.0.8", 25))
    assert [type(act) for act in session.feed(b"a")] == [Reset]


def test_a_broken_connection_breaks_again():
    one = dialogue([(UP, b"a"), (DOWN, b"half")], to=AT, reset=DOWN)
    assert PLAIN.calls(one)[0].end is CallEnd.RESET
    session, _, _ = open_to(one)
    assert [type(act) for act in session.feed(b"a")] == [Send, Reset]


def test_a_real_conversation_comes_again():
    """Lines are answered with themselves, in a real connection through the recording pipe."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"welcome\n")
            while data := connection.recv(100):
                connection.sendall(data.upper())

    def program(port: int) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            got = [connection.recv(100)]
            for word in (b"one", b"two", b"one"):
                connection.sendall(word)
                got.append(connection.recv(100))
            return got

    thread = threading.Thread(target=echo)
    thread.start()
    to = listener.getsockname()
    with recording(to) as pipe:
        first = program(pipe.port)
        calls = [call for one in pipe.settle() for call in PLAIN.calls(one)]
    thread.join()
    listener.close()
    assert_it_continues_everywhere(PLAIN, pipe.dialogues[0])
    with answering(PLAIN, Pool(calls), to=to) as port:
        assert program(port) == first == [b"welcome\n", b"ONE", b"TWO", b"ONE"]


@given(st.lists(st.tuples(st.sampled_from(Way), st.binary(max_size=6)), max_size=10))
@settings(max_examples=60, deadline=None)
def test_whatever_is_said_continues_at_every_byte(pieces):
    one = dialogue(pieces, to=AT)
    calls = PLAIN.calls(one)
    assert b"".join(one.text(UP, *call.up) for call in calls) == one.text(UP)
    assert b"".join(piece.data for call in calls for piece in call.pieces) == one.text(DOWN)
    assert_it_continues_everywhere(PLAIN, one)
    session, _ = PLAIN.resume(Pool([]), 1, Resume(one, 0, 0))
    session.feed(b"\xff" * 9)
