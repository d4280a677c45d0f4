"""Names: what was recorded of name servers, over UDP and TCP."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.answering import bytes_of
from protocols.continuing import assert_it_continues_everywhere
from protocols.scripted import dialogue
from relive.protocols.names import Names
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.session import Reset
from relive.recording.dialogues import Way
from relive.recording.events import Event, EventKind

NAMES = Names()
A, AAAA = 1, 28
AT = ("10.0.0.2", 53)


def spelled(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def question(name: str, kind: int = A, number: int = 7) -> bytes:
    return struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + spelled(name) + struct.pack("!2H", kind, 1)


def answer(name: str, value: bytes, kind: int = A, number: int = 7, status: int = 0) -> bytes:
    count = 1 if value else 0
    head = struct.pack("!6H", number, 0x8180 | status, 1, count, 0, 0)
    record = b"\xc0\x0c" + struct.pack("!2HIH", kind, 1, 60, len(value)) + value if value else b""
    return head + question(name, kind)[12:] + record


def lookup(asked: bytes, said: bytes, seq: int = 1) -> Event:
    fields = {"to": ["10.0.0.2", 53], "question": asked, "ns": 5_000_000}
    return Event(seq, 10_000_000, 0, EventKind.NAME_LOOKUP, data=said, fields=fields)


def pool_of(*events: Event, found: list[PoolMatch] | None = None) -> Pool:
    return Pool(NAMES.lookups(events), on_found=(found if found is not None else []).append)


def test_a_lookup_is_a_call():
    (call,) = NAMES.lookups([lookup(question("Db.Example"), answer("Db.Example", b"\x0a\0\0\x07"))])
    assert call.asked == {"name": "db.example", "type": "A", "over": "udp"}
    assert call.answer == {"status": "NOERROR", "records": [["A", "10.0.0.7"]]}
    assert call.to == AT


def test_a_name_is_answered_as_often_as_it_is_asked_with_the_id_and_the_spelling_of_the_question():
    pool = pool_of(lookup(question("db.example"), answer("db.example", b"\x0a\0\0\x07")))
    for number in (9, 10):
        said = NAMES.answer(pool, 1, question("dB.eXample", number=number))
        assert said is not None
        assert said.data == answer("dB.eXample", b"\x0a\0\0\x07", number=number)
        assert said.after_ns == 5_000_000


def test_what_was_not_there_is_not_there_again():
    pool = pool_of(lookup(question("gone"), answer("gone", b"", status=3)))
    said = NAMES.answer(pool, 1, question("gone", number=1))
    assert said is not None
    assert said.data[3] & 15 == 3


def test_what_was_not_answered_is_met_with_silence():
    assert NAMES.answer(pool_of(lookup(question("slow"), b"")), 1, question("slow")) is None


@pytest.mark.parametrize(("policy", "status"), [("nxdomain", 3), ("servfail", 2)])
def test_a_name_that_was_never_asked_for(policy, status):
    found: list[PoolMatch] = []
    pool = pool_of(lookup(question("db"), answer("db", b"\x0a\0\0\x07")), found=found)
    said = Names(policy).answer(pool, 1, question("other"))
    assert said is not None
    assert struct.unpack_from("!6H", said.data) == (7, 0x8180 | status, 1, 0, 0, 0)
    assert said.data[12:] == question("other")[12:]
    assert found[0].differs == ("$.name",)


def test_of_a_known_name_it_is_not_said_that_there_is_none():
    """The answer to another type is that there is nothing of this type: else resolvers would give up the name."""
    pool = pool_of(lookup(question("db"), answer("db", b"\x0a\0\0\x07")))
    said = NAMES.answer(pool, 1, question("db", AAAA))
    assert said is not None
    assert said.data[3] & 15 == 0
    assert struct.unpack_from("!H", said.data, 6) == (0,)


def over_tcp(message: bytes) -> bytes:
    return len(message).to_bytes(2) + message


TCP = [
    (Way.UP, over_tcp(question("big")) + over_tcp(question("db", number=8))),
    (Way.DOWN, over_tcp(answer("big", b"\x0a\0\0\x08"))),
    (Way.DOWN, over_tcp(answer("db", b"\x0a\0\0\x07", number=8))),
]


def test_names_asked_over_tcp_continue_at_every_byte():
    said = dialogue(TCP, to=AT)
    assert NAMES.recognises(said)
    assert [call.asked["name"] for call in NAMES.calls(said)] == ["big", "db"]
    assert_it_continues_everywhere(NAMES, said)


def test_each_transport_has_its_answer_and_helps_the_other():
    cut = answer("big", b"")
    events = [lookup(question("big"), cut), lookup(question("only"), answer("only", b"\x0a\0\0\x09"), 2)]
    pool = Pool([*NAMES.lookups(events), *NAMES.calls(dialogue(TCP, to=AT))])
    session = NAMES.open(pool, 1, to=AT)
    assert bytes_of(session.feed(over_tcp(question("big")))) == over_tcp(answer("big", b"\x0a\0\0\x08"))
    assert bytes_of(session.feed(over_tcp(question("only")))) == over_tcp(answer("only", b"\x0a\0\0\x09"))
    said = NAMES.answer(pool, 1, question("db"))
    assert said is not None
    assert said.data == answer("db", b"\x0a\0\0\x07")
    assert bytes_of([NAMES.answer(pool, 1, question("big"))]) == cut


def test_nonsense_over_tcp_breaks_the_connection():
    assert [type(act) for act in NAMES.open(Pool([]), 1).feed(b"\0\1x")] == [Reset]


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=80, deadline=None)
def test_nothing_that_is_said_raises(asked, said):
    pool = pool_of(lookup(question("db"), b"\0" * 4 + said), lookup(asked, said, 2))
    NAMES.answer(pool, 1, asked)
    NAMES.answer(pool, 1, b"\0\7\1\0\0\1" + asked)
    NAMES.answer(pool, 1, question("db"))
    session = NAMES.open(pool, 1)
    session.feed(asked)
    one = dialogue([(Way.UP, asked), (Way.DOWN, said)], to=AT)
    assert len(NAMES.calls(one)) <= 6


def test_a_name_that_points_to_itself_ends():
    message = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1"
    said = NAMES.answer(Pool([]), 1, message)
    assert said is not None
    assert said.data[3] & 15 == 1
