"""What a service is answered by a recorded PostgreSQL server: word for word, at the recorded times, and asked otherwise."""

from __future__ import annotations

import json
import struct

import pytest

from relive.protocols.call import CallEnd
from relive.protocols.pool import PoolMatch
from relive.protocols.postgres import PostgreSQL
from relive.protocols.postgres.messages import (
    Column,
    build,
    error,
    read_error,
    ready,
    row_description,
    status,
)
from relive.protocols.session import Close, Reset, Resume, Send
from relive.recording.dialogues import Dialogue, Tls, Way

from .conversations import (
    MS,
    OPENING,
    STARTUP,
    TO,
    bind,
    conversation,
    described,
    execute,
    opened,
    parse,
    pool_of,
    query,
    said,
    selected,
    startup,
)

OPEN = (("up", 0, STARTUP), ("down", 3, OPENING))
SYNC = build("S")
FLUSH = build("H")
ASK = "select n from t where a = $1"


def fields(message: bytes) -> dict[str, str]:
    assert message[:1] == b"E"
    return read_error(message[5:])


def extended(text: str, *values: bytes, name: str = "") -> bytes:
    return parse(text, name) + bind(*values, statement=name) + described("P") + execute() + SYNC


def answered(*values: str, state: str = "I") -> bytes:
    return build("1") + build("2") + selected(*values) + ready(state)


# -- word for word -----------------------------------------------------------------------------------------------------


def test_an_answer_comes_in_the_recorded_pieces_at_the_recorded_times():
    answer = selected("one", "two") + ready("I")
    dialogue = conversation(
        *OPEN, ("up", 5, query("select n")), ("down", 7, answer[:20]), ("down", 30, answer[20:])
    )
    pool = pool_of(dialogue)
    session = PostgreSQL().open(pool, 1, to=TO)
    assert session.feed(STARTUP) == [Send(OPENING, 3 * MS)]
    assert session.feed(query("select n")) == [Send(answer[:20], 7 * MS), Send(answer[20:], 30 * MS)]
    assert pool.left() == []


def test_a_question_in_any_pieces_is_the_same_question():
    dialogue = conversation(*OPEN, ("up", 5, extended(ASK, b"7")), ("down", 7, answered("x")))
    session = PostgreSQL().open(pool_of(dialogue), 1, to=TO)
    got = b"".join(said(session.feed(bytes([byte]))) for byte in STARTUP + extended(ASK, b"7"))
    assert got == OPENING + answered("x")


def test_the_time_of_what_is_not_asked_again_is_kept():
    """Recorded with a Parse, asked with a prepared statement: it takes as long."""
    dialogue = conversation(
        *OPEN,
        ("up", 0, parse(ASK, "s1") + SYNC),
        ("down", 1, build("1") + ready("I")),
        ("up", 0, extended(ASK, b"7")),
        ("down", 9, answered("x")),
    )
    session = opened(pool_of(dialogue))
    assert said(session.feed(parse(ASK, "other") + SYNC)) == build("1") + ready("I")
    acts = session.feed(bind(b"7", statement="other") + execute() + SYNC)
    assert acts == [Send(build("2") + selected("x", described=False) + ready("I"), 9 * MS)]


def test_a_server_that_closes_or_breaks_the_connection_in_mid_answer_does_so_again():
    half = selected("one")[:25]
    for how, act in (("closed", Close(4 * MS)), ("reset", Reset(4 * MS))):
        dialogue = conversation(
            *OPEN, ("up", 5, query("select n")), ("down", 7, half), ended=[("down", 4, how)]
        )
        session = opened(pool_of(dialogue))
        assert session.feed(query("select n")) == [Send(half, 7 * MS), act]
        assert session.feed(query("select n")) == []


@pytest.mark.parametrize(
    "ended", [[("up", 3000, "closed")], [("up", 3000, "reset"), ("down", 0, "closed")], []]
)
def test_a_statement_that_never_got_an_answer_is_met_with_silence(ended):
    dialogue = conversation(*OPEN, ("up", 5, extended(ASK, b"7")), ended=ended)
    (_, call) = PostgreSQL().calls(dialogue)
    assert call.end is (CallEnd.GIVEN_UP if ended else CallEnd.OPEN)
    assert call.answer is None
    session = opened(pool_of(dialogue))
    assert session.feed(extended(ASK, b"7")) == []
    assert session.hang_up() == []


def test_a_fatal_error_is_given_with_the_end_of_the_connection():
    fatal = error("57P01", "terminating connection", severity="FATAL")
    dialogue = conversation(
        *OPEN, ("up", 5, query("select n")), ("down", 7, fatal), ended=[("down", 0, "closed")]
    )
    assert opened(pool_of(dialogue)).feed(query("select n")) == [Send(fatal, 7 * MS), Close(0)]


def test_what_comes_unasked_is_marked_so():
    notification = build("A", struct.pack("!I", 9) + b"news\0hello\0")
    done = build("C", b"LISTEN\0") + ready("I")
    fatal = error("57P01", "terminating connection", severity="FATAL")
    dialogue = conversation(
        *OPEN,
        ("up", 1, query("listen news")),
        ("down", 1, done),
        ("down", 500, notification),
        ("down", 60, fatal),
        ended=[("down", 2, "closed")],
    )
    assert opened(pool_of(dialogue)).feed(query("listen news")) == [
        Send(done, 1 * MS),
        Send(notification, 500 * MS, unasked=True),
        Send(fatal, 60 * MS, unasked=True),
        Close(2 * MS, unasked=True),
    ]


def test_a_notice_within_an_answer_is_part_of_it():
    notice = build("N", error("00000", "by the way", severity="NOTICE")[5:])
    answer = notice + selected("x") + ready("I")
    dialogue = conversation(*OPEN, ("up", 1, query("select n")), ("down", 1, answer))
    assert said(opened(pool_of(dialogue)).feed(query("select n"))) == answer
    assert PostgreSQL().calls(dialogue)[1].answer["notices"][0]["message"] == "by the way"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_calls_read_like_those_of_the_recorder_in_processes():
    types = build("t", struct.pack("!HI", 1, 23))
    prepared = types + row_description([Column("n", 0, 0, 23, 4, -1, 0)])
    dialogue = conversation(
        *OPEN,
        ("up", 1, parse(ASK, "s1") + described("S", "s1") + FLUSH),
        ("down", 1, build("1") + prepared),
        ("up", 1, bind(b"7", statement="s1") + execute() + SYNC),
        ("down", 1, build("2") + selected("1", "2", described=False) + ready("T")),
    )
    connect, prepare, ask = PostgreSQL().calls(dialogue)
    begin = {"system": "postgresql", "server": "10.0.0.5:5432", "database": "shop"}
    assert connect.asked == {**begin, "statement": "CONNECT", "parameters": {"user": "ann"}}
    assert connect.answer == {
        "parameters": {"server_version": "15.4", "TimeZone": "Etc/UTC"},
        "backend_pid": 42,
    }
    assert prepare.asked == {**begin, "statement": ASK, "prepare": True}
    assert prepare.answer == {"parameters": [23], "columns": ["n"], "types": [23]}
    assert ask.asked == {**begin, "statement": ASK, "parameters": [7]}
    assert ask.answer == {
        "columns": ["n"],
        "types": [23],
        "rowcount": 2,
        "rows": [[1], [2]],
        "status": "SELECT 2",
        "transaction": True,
    }
    assert [call.end for call in (connect, prepare, ask)] == [CallEnd.ANSWERED] * 3
    assert b"".join(piece.data for call in (connect, prepare, ask) for piece in call.pieces) == dialogue.text(
        Way.DOWN
    )


def test_several_statements_in_one_query_are_one_call():
    dialogue = conversation(
        *OPEN,
        ("up", 1, query("select 1; update t set a = 2")),
        ("down", 1, selected("1") + build("C", b"UPDATE 3\0") + ready("I")),
    )
    (_, call) = PostgreSQL().calls(dialogue)
    assert call.answer["rows"] == [["1"]]
    assert call.answer["then"] == [{"status": "UPDATE 3", "rowcount": 3}]


def test_what_makes_no_sense_is_a_last_call_of_bytes():
    dialogue = conversation(*OPEN, ("up", 1, b"\xff\xff"), ("down", 1, b"\xfe"))
    (_, rest) = PostgreSQL().calls(dialogue)
    assert rest.asked == {"system": "postgresql", "bytes": {"$": ["bytes", "//8="]}}
    assert rest.pieces[0].data == b"\xfe"


def test_a_connection_that_was_encrypted_is_bytes_behind_the_request():
    request = struct.pack("!II", 8, 80877103)
    dialogue = conversation(
        ("up", 0, request), ("down", 1, b"S"), ("up", 1, b"\x16\x03\x01"), ("down", 1, b"\x16")
    )
    assert PostgreSQL().recognises(dialogue)
    (rest,) = PostgreSQL().calls(dialogue)
    assert (rest.asked["bytes"], rest.pieces[0].data) == ("\x16\x03\x01", b"\x16")


def test_a_connection_that_was_opened_in_the_middle_is_read_on():
    request = struct.pack("!II", 8, 80877103)
    dialogue = conversation(("up", 0, request), ("down", 1, b"S"), *OPEN)
    dialogue.tls = Tls.OPENED
    assert [call.asked["statement"] for call in PostgreSQL().calls(dialogue)] == ["CONNECT"]


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0\0\0\x08", b""])
def test_other_protocols_are_not_taken_for_it(begin):
    assert not PostgreSQL().recognises(conversation(("up", 0, begin)))


# -- asked differently -------------------------------------------------------------------------------------------------


def test_names_of_statements_and_portals_do_not_matter():
    dialogue = conversation(
        *OPEN, ("up", 1, extended(ASK, b"7", name="__asyncpg_stmt_3__")), ("down", 1, answered("x"))
    )
    asked = (
        parse(ASK, "mine")
        + bind(b"7", statement="mine", portal="p")
        + described("P", "p")
        + execute("p")
        + SYNC
    )
    assert said(opened(pool_of(dialogue)).feed(asked)) == answered("x")


def test_a_description_that_was_not_asked_for_is_made_from_what_is_known():
    dialogue = conversation(*OPEN, ("up", 1, extended(ASK, b"7")), ("down", 1, answered("x")))
    asked = parse(ASK, "mine", [25]) + described("S", "mine") + FLUSH
    session = opened(pool_of(dialogue))
    description = row_description([Column("n", 0, 0, 25, -1, -1, 0)])
    assert said(session.feed(asked)) == build("1") + build("t", struct.pack("!HI", 1, 25)) + description
    assert said(session.feed(bind(b"7", statement="mine") + execute() + SYNC)) == (
        build("2") + selected("x", described=False) + ready("I")
    )


def test_a_simple_query_and_one_of_the_extended_protocol_answer_each_other():
    text = "select n from t"
    simple = conversation(*OPEN, ("up", 1, query(text)), ("down", 1, selected("x") + ready("I")))
    assert said(opened(pool_of(simple)).feed(extended(text))) == answered("x")
    asked = conversation(*OPEN, ("up", 1, extended(text)), ("down", 1, answered("x")))
    assert said(opened(pool_of(asked)).feed(query(text))) == selected("x") + ready("I")


def test_an_error_comes_at_its_place_and_the_rest_is_passed_over_to_the_next_sync():
    failed = error("22P02", "invalid input")
    dialogue = conversation(
        *OPEN, ("up", 1, extended(ASK, b"x")), ("down", 1, build("1") + failed + ready("I"))
    )
    session = opened(pool_of(dialogue))
    assert said(session.feed(extended(ASK, b"x")[:-5])) == b""
    assert said(session.feed(FLUSH)) == build("1") + failed
    assert said(session.feed(query("select passed_over") + FLUSH)) == b""
    assert said(session.feed(SYNC)) == ready("I")


def test_rows_in_parts_are_told_apart():
    begin = parse("select n") + bind(portal="c")
    dialogue = conversation(
        *OPEN,
        ("up", 1, begin + execute("c", 1) + FLUSH),
        ("down", 1, build("1") + build("2") + selected("1", described=False)[:-14] + build("s")),
        ("up", 1, execute("c", 1) + FLUSH),
        ("down", 1, selected("2", described=False)[:-14] + build("s")),
        ("up", 1, execute("c", 1) + SYNC),
        ("down", 1, selected(described=False) + ready("I")),
    )
    calls = PostgreSQL().calls(dialogue)[1:]
    assert [(call.asked["fetch"], call.asked.get("part")) for call in calls] == [(1, None), (1, 2), (1, 3)]
    assert [call.answer.get("completed") for call in calls] == [False, False, None]
    session = opened(pool_of(dialogue))
    got = [session.feed(begin + execute("c", 1) + FLUSH), session.feed(execute("c", 1) + FLUSH)]
    got.append(session.feed(execute("c", 1) + SYNC))
    assert b"".join(map(said, got)) == dialogue.text(Way.DOWN)[len(OPENING) :]


# -- transactions and what is known without a recording ------------------------------------------------------------------


def done(tag: str, state: str) -> bytes:
    return build("C", tag.encode() + b"\0") + ready(state)


def test_the_state_of_the_transaction_is_that_of_the_live_connection():
    """A query recorded outside a transaction and asked in one; what is known by itself is told as simulated."""
    seen: list[PoolMatch] = []
    dialogue = conversation(*OPEN, ("up", 1, query("select n")), ("down", 1, selected("x") + ready("I")))
    session = opened(pool_of(dialogue, seen=seen))
    assert said(session.feed(query("BEGIN"))) == done("BEGIN", "T")
    assert said(session.feed(query("select n"))) == selected("x") + ready("T")
    assert said(session.feed(query("savepoint a; release a;"))) == build("C", b"SAVEPOINT\0") + done(
        "RELEASE", "T"
    )
    assert said(session.feed(query("rollback to a"))) == done("ROLLBACK", "T")
    assert said(session.feed(query("COMMIT AND CHAIN"))) == done("COMMIT", "T")
    assert said(session.feed(query("COMMIT"))) == done("COMMIT", "I")
    assert [found.simulated for found in seen] == [False, True, False, True, True, True, True]


def test_a_failed_transaction_refuses_all_but_its_end_and_uses_nothing_up():
    dialogue = conversation(*OPEN, ("up", 1, query("select n")), ("down", 1, selected("x") + ready("I")))
    pool = pool_of(dialogue)
    session = opened(pool)
    session.feed(query("begin"))
    assert said(session.feed(query("insert into t values (1)")))[-1:] == b"E"
    assert fields(said(session.feed(query("select n"))))["code"] == "25P02"
    assert fields(said(session.feed(extended("select n"))))["code"] == "25P02"
    assert len(pool.left()) == 1
    assert said(session.feed(query("commit"))) == done("ROLLBACK", "I")
    assert said(session.feed(query("select n"))) == selected("x") + ready("I")


def test_the_reset_of_a_pool_is_known():
    session = opened(pool_of(conversation(*OPEN)))
    text = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"
    got = said(session.feed(query(text)))
    for tag in (b"SELECT 1", b"CLOSE CURSOR ALL", b"UNLISTEN", b"RESET"):
        assert build("C", tag + b"\0") in got
    assert got.endswith(ready("I"))


def test_a_parameter_that_is_set_is_told():
    session = opened(pool_of(conversation(*OPEN)))
    for text in ("SET TIME ZONE 'Asia/Tokyo'", "set session timezone to 'Asia/Tokyo'"):
        changed = build("C", b"SET\0") + status("TimeZone", "Asia/Tokyo") + ready("I")
        assert said(session.feed(query(text))) == changed
    assert said(session.feed(query("set work_mem = '1MB'"))) == done("SET", "I")


def test_in_binary_too():
    session = opened(pool_of(conversation(*OPEN)))
    asked = parse("SELECT 1") + bind(formats=[1]) + described("P") + execute() + SYNC
    description = row_description([Column("?column?", 0, 0, 23, 4, -1, 1)])
    answer = (
        build("1") + build("2") + description + build("D", b"\0\1\0\0\0\4\0\0\0\1") + done("SELECT 1", "I")
    )
    assert said(session.feed(asked)) == answer


# -- misses ------------------------------------------------------------------------------------------------------------


def test_a_miss_is_an_error_that_names_the_nearest_call_and_what_differs():
    seen: list[PoolMatch] = []
    dialogue = conversation(*OPEN, ("up", 1, extended(ASK, b"7")), ("down", 1, answered("x")))
    session = opened(pool_of(dialogue, seen=seen))
    got = said(session.feed(extended(ASK, b"8")))
    assert got.endswith(ready("I"))
    told = fields(got)
    assert (told["severity"], told["code"]) == ("ERROR", "58000")
    assert json.dumps(ASK) in told["message"]
    assert "$.parameters[0]" in told["detail"]
    assert told["hint"] == "To accept the difference: --ignore '$.parameters[0]'"
    assert seen[-1].is_miss
    assert said(session.feed(extended(ASK, b"7"))) == answered("x")


def test_another_server_has_other_answers():
    seen: list[PoolMatch] = []
    dialogue = conversation(*OPEN, ("up", 1, query("select n")), ("down", 1, selected("x") + ready("I")))
    session = PostgreSQL().open(pool_of(dialogue, seen=seen), 1, to=("10.0.0.6", 5432))
    assert said(session.feed(STARTUP)) == OPENING
    assert fields(said(session.feed(query("select n"))))["code"] == "58000"
    assert seen[-1].differs == ("$.server",)


def test_a_miss_can_break_the_connection():
    session = PostgreSQL("reset").open(pool_of(conversation(*OPEN)), 1, to=TO)
    session.feed(STARTUP)
    assert session.feed(query("select never_asked")) == [Reset()]
    assert session.feed(query("select 1")) == []


def test_reads_are_given_again_and_writes_are_not():
    read, write = "select n from t", "insert into t values (1) returning n"
    dialogue = conversation(
        *OPEN,
        ("up", 1, query(read)),
        ("down", 1, selected("x") + ready("I")),
        ("up", 1, query(write)),
        ("down", 1, selected("y", tag="INSERT 0 1") + ready("I")),
    )
    session = opened(pool_of(dialogue))
    for text in (read, write, read):
        assert b"Relive" not in said(session.feed(query(text)))
    assert fields(said(session.feed(query(write))))["code"] == "58000"


# -- opening -----------------------------------------------------------------------------------------------------------


def test_encryption_is_refused_and_the_connection_goes_on():
    session = PostgreSQL().open(pool_of(conversation(*OPEN)), 1, to=TO)
    assert session.feed(struct.pack("!II", 8, 80877103)) == [Send(b"N")]
    assert session.feed(struct.pack("!II", 8, 80877104)) == [Send(b"N")]
    assert said(session.feed(STARTUP)) == OPENING


SASL = build("R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0")
MORE = build("R", struct.pack("!I", 11) + b"r=abcdef,s=QQ==,i=4096")
LAST = build("R", struct.pack("!I", 12) + b"v=abcd")
WORDS = (build("p", b"SCRAM-SHA-256\0\0\0\0\5n,,ab"), build("p", b"c=biws,r=abcdef,p=zz"))
SCRAM = conversation(
    ("up", 0, STARTUP),
    ("down", 1, SASL),
    ("up", 1, WORDS[0]),
    ("down", 1, MORE),
    ("up", 1, WORDS[1]),
    ("down", 1, LAST + OPENING),
    ("up", 1, query("select n")),
    ("down", 1, selected("x") + ready("I")),
)


def test_a_client_is_let_in_without_the_recorded_exchange_of_passwords():
    session = PostgreSQL().open(pool_of(SCRAM), 1, to=TO)
    assert said(session.feed(STARTUP)) == OPENING
    (connect, _) = PostgreSQL().calls(SCRAM)
    assert "zz" not in json.dumps([connect.asked, connect.answer])


def test_a_connection_that_was_being_opened_goes_on_with_its_own_words():
    first = len(STARTUP)
    session, acts = PostgreSQL().resume(pool_of(SCRAM), 1, Resume(SCRAM, first, len(SASL)))
    assert acts == []
    assert said(session.feed(WORDS[0])) == MORE
    assert said(session.feed(WORDS[1])) == LAST + OPENING
    other, _ = PostgreSQL().resume(pool_of(SCRAM), 1, Resume(SCRAM, first, len(SASL)))
    assert said(other.feed(build("p", b"SCRAM-SHA-256\0\0\0\0\5n,,xy"))) == OPENING
    assert said(other.feed(query("select n"))) == selected("x") + ready("I")


def test_an_opening_that_was_refused_is_refused_again():
    refused = error("53300", "too many connections", severity="FATAL")
    dialogue = conversation(("up", 0, STARTUP), ("down", 2, refused), ended=[("down", 0, "closed")])
    session = PostgreSQL().open(pool_of(dialogue), 1, to=TO)
    assert session.feed(STARTUP) == [Send(refused, 2 * MS), Close(0)]


def test_another_user_is_let_in_as_at_that_server():
    session = PostgreSQL().open(pool_of(conversation(*OPEN)), 1, to=TO)
    assert said(session.feed(startup(user="bob"))) == OPENING


def test_a_server_of_which_nothing_is_recorded_has_usual_settings():
    got = said(PostgreSQL().open(pool_of(), 1, to=TO).feed(STARTUP))
    assert got.startswith(build("R", b"\0\0\0\0"))
    assert status("client_encoding", "UTF8") in got
    assert got.endswith(ready("I"))


def test_a_newer_protocol_is_negotiated_down():
    session = PostgreSQL().open(pool_of(), 1, to=TO)
    got = said(session.feed(startup((3 << 16) + 9999, user="ann", **{"_pq_.test": "1"})))
    assert got.startswith(build("v", struct.pack("!II", (3 << 16) + 2, 1) + b"_pq_.test\0"))


def test_a_request_to_cancel_is_taken_and_closed():
    seen: list[PoolMatch] = []
    request = struct.pack("!IIII", 16, 80877102, 42, 99)
    assert PostgreSQL().open(pool_of(seen=seen), 1, to=TO).feed(request) == [Close()]
    assert seen[0].asked["statement"] == "CANCEL"
    dialogue = conversation(("up", 0, request), ended=[("down", 1, "closed")])
    assert [call.end for call in PostgreSQL().calls(dialogue)] == [CallEnd.CLOSED]


def test_a_client_that_takes_leave_is_let_go():
    assert opened(pool_of(conversation(*OPEN))).feed(build("X")) == [Close()]
    assert opened(pool_of(conversation(*OPEN))).hang_up() == [Close()]


def test_what_is_no_message_is_refused_as_a_server_does():
    acts = opened(pool_of(conversation(*OPEN))).feed(b"\xff\0\0\0\4")
    assert fields(said(acts))["code"] == "08P01"
    assert acts[-1] == Close()


# -- connections that a commit holds -------------------------------------------------------------------------------------


def resumed(dialogue: Dialogue, up: int, down: int) -> tuple[bytes, bytes]:
    """(what is done first, what follows when the rest of the questions comes)"""
    session, acts = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, up, down))
    return said(acts), said(session.feed(dialogue.text(Way.UP, up)))


def test_an_answer_half_delivered_goes_on_at_its_place_and_pace():
    answer = selected("one", "two") + ready("I")
    dialogue = conversation(
        *OPEN, ("up", 5, query("select n")), ("down", 7, answer[:20]), ("down", 30, answer[20:])
    )
    up, begin = len(dialogue.text(Way.UP)), len(OPENING)
    _, acts = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, up, begin + 15))
    assert acts == [Send(answer[15:20], 0), Send(answer[20:], 30 * MS)]
    _, acts = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, up, begin + len(answer)))
    assert acts == []


def test_statements_that_were_prepared_before_the_commit_are_there():
    dialogue = conversation(
        *OPEN,
        ("up", 1, parse(ASK, "s1", [23]) + SYNC),
        ("down", 1, build("1") + ready("I")),
        ("up", 1, bind(b"7", statement="s1") + execute() + SYNC),
        ("down", 1, build("2") + selected("x", described=False) + ready("I")),
    )
    up = len(STARTUP + parse(ASK, "s1", [23]) + SYNC)
    down = len(OPENING + build("1") + ready("I"))
    first, then = resumed(dialogue, up, down)
    assert first == b""
    assert then == dialogue.text(Way.DOWN, down)


def test_answers_that_came_before_they_were_waited_for_go_on_at_their_place():
    """A server that is asked much says what its buffer cannot hold before it sees the Sync."""
    first, second = extended(ASK, b"1")[:-5], extended(ASK, b"2")
    dialogue = conversation(
        *OPEN,
        ("up", 1, first),
        ("down", 1, answered("x")[:30]),
        ("up", 1, second),
        ("down", 1, answered("x")[30:-6] + answered("y")),
    )
    asked, told = dialogue.text(Way.UP), dialogue.text(Way.DOWN)
    for up in range(len(STARTUP), len(asked) + 1):
        for down in {len(OPENING), len(OPENING) + (29 if up >= len(STARTUP + first) else 0)}:
            assert b"".join(resumed(dialogue, up, down)) == told[down:], f"at {up}, {down}"


def test_a_transaction_that_was_open_stays_so():
    dialogue = conversation(*OPEN, ("up", 1, query("begin")), ("down", 1, done("BEGIN", "T")))
    up, down = len(dialogue.text(Way.UP)), len(dialogue.text(Way.DOWN))
    session, _ = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, up, down))
    assert said(session.feed(query("savepoint x"))) == done("SAVEPOINT", "T")


def test_a_server_that_closed_an_idle_connection_closes_it_again():
    dialogue = conversation(*OPEN, ended=[("down", 90, "closed")])
    _, acts = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, len(STARTUP), len(OPENING)))
    assert acts == [Close(90 * MS, unasked=True)]


def test_an_answer_that_never_came_does_not_come():
    dialogue = conversation(*OPEN, ("up", 1, query("select n")), ended=[("up", 900, "closed")])
    up = len(dialogue.text(Way.UP))
    session, acts = PostgreSQL().resume(pool_of(dialogue), 1, Resume(dialogue, up, len(OPENING)))
    assert (acts, session.feed(query("select n"))) == ([], [])
