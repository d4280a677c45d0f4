"""Real programs against a real PostgreSQL server, then against what was recorded: they see the same.

And the recorded connections, taken up in the middle at every byte: what comes is what came.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncpg
import psycopg
import pytest

from relive.protocols.call import Call, CallEnd
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.postgres import PostgreSQL
from relive.protocols.postgres.dialogue_steps import read_steps
from relive.protocols.postgres.values import decode
from relive.protocols.session import Resume
from relive.recording.dialogues import Dialogue, DialoguePiece, Way
from support.servers import HAS_POSTGRES, postgres_server

from .answering import answering
from .conversations import said
from .postgres_programs import PROGRAMS
from .recording import recording

pytestmark = pytest.mark.skipif(not HAS_POSTGRES, reason="no PostgreSQL server is installed")
QUICK = 1e9  # pauses are not kept


@dataclass(frozen=True)
class Recorded:
    """What a program saw, and what it said to the server."""

    seen: list[str]
    dialogues: list[Dialogue]

    def calls(self) -> list[Call]:
        calls = [call for dialogue in self.dialogues for call in PostgreSQL().calls(dialogue)]
        return sorted(calls, key=lambda call: call.asked_mono_ns)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with postgres_server() as address:
        yield "127.0.0.1", int(address.rpartition(":")[2].partition("/")[0])


@pytest.fixture(scope="module")
def recordings(server) -> dict[str, Recorded]:
    made: dict[str, Recorded] = {}
    for name, program in PROGRAMS.items():
        with recording(server) as pipe:
            made[name] = Recorded(program(pipe.port), pipe.dialogues)
    return made


each_program = pytest.mark.parametrize("name", PROGRAMS)


@each_program
def test_a_program_sees_the_same_without_the_server(recordings, name):
    recorded, found = recordings[name], list[PoolMatch]()
    pool = Pool(recorded.calls(), on_found=found.append)
    with answering(PostgreSQL(), pool, to=recorded.dialogues[0].to, speed=QUICK) as port:
        assert PROGRAMS[name](port) == recorded.seen
    assert [one.asked for one in found if one.is_miss or one.again or one.simulated] == []
    assert pool.left() == []


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # programs that fail close nothing
@each_program
def test_a_program_that_runs_twice_as_often_gets_its_reads_again_and_no_write(recordings, name):
    found: list[PoolMatch] = []
    recorded = recordings[name]
    pool = Pool(recorded.calls(), on_found=found.append)
    with answering(PostgreSQL(), pool, to=recorded.dialogues[0].to, speed=QUICK) as port:
        PROGRAMS[name](port)
        del found[:]
        with pytest.raises(Exception, match=r"Relive: no recorded answer to"):
            PROGRAMS[name](port)
    gc.collect()
    misses = [one for one in found if one.is_miss]
    assert misses and all(one.nearest is not None for one in misses)


def cuts(dialogue: Dialogue) -> list[tuple[int, int]]:
    """All places (up, down) at which a commit can have found a connection, with the bytes in the order in which they came."""
    places = {Way.UP: 0, Way.DOWN: 0}
    found = [(0, 0)]
    for piece in dialogue.pieces:
        for _ in piece.data:
            places[piece.way] += 1
            found.append((places[Way.UP], places[Way.DOWN]))
    return found


def small(port: int) -> None:
    """A little of everything, so that every byte can be tried."""
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{port}/postgres", prepare_threshold=0
    ) as connection:
        cursor = connection.execute("create temp table s (a int unique)")
        for _ in range(2):
            connection.execute("select %s::int", (5,))
        with cursor.copy("copy s from stdin") as copy:
            copy.write("1\n")
        try:
            connection.execute("insert into s values (%s)", (1,))
        except psycopg.Error:
            connection.rollback()
        with connection.pipeline():
            connection.execute("select 1")
            connection.execute("select 2")


def test_a_connection_is_taken_up_at_every_byte(server):
    with recording(server) as pipe:
        small(pipe.port)
    (dialogue,) = pipe.dialogues
    calls = PostgreSQL().calls(dialogue)
    asked, answered = dialogue.text(Way.UP), dialogue.text(Way.DOWN)
    places = cuts(dialogue)
    assert len(places) == len(asked) + len(answered) + 1 > 1500
    for up, down in places:
        pool = Pool(calls)
        session, acts = PostgreSQL().resume(pool, 1, Resume(dialogue, up, down))
        assert said(acts) + said(session.feed(asked[up:])) == answered[down:], f"at {up}, {down}"
        assert pool.left() == []


@each_program
def test_connections_of_programs_are_taken_up_anywhere(recordings, name):
    chance = random.Random(1)
    calls = recordings[name].calls()
    for dialogue in recordings[name].dialogues:
        answered = dialogue.text(Way.DOWN)
        for up, down in chance.sample(cuts(dialogue), 15):
            session, acts = PostgreSQL().resume(Pool(calls), 1, Resume(dialogue, up, down))
            got = said(acts) + b"".join(
                said(session.feed(piece.data[max(0, up - piece.at) :]))
                for piece in dialogue.of(Way.UP)
                if piece.at + len(piece.data) > up
            )
            assert got == answered[down:], f"at {up}, {down}"


@each_program
def test_all_that_a_server_said_is_in_a_call(recordings, name):
    """But for the refusal of encryption, CloseComplete, and ReadyForQuery of a Sync without a query."""
    for dialogue in recordings[name].dialogues:
        calls = PostgreSQL().calls(dialogue)
        pieces = [piece for call in calls for piece in (*call.pieces, *call.extra["parts"].trail.said)]
        assert sum(len(piece.data) for piece in pieces) >= 0.95 * len(dialogue.text(Way.DOWN))
        assert all(call.end is CallEnd.ANSWERED for call in calls)
        assert all(b"".join(piece.data for piece in call.pieces) in dialogue.text(Way.DOWN) for call in calls)
        json.dumps([[call.asked, call.answer] for call in calls])


def test_parameters_and_rows_are_told_in_the_recorders_words(recordings):
    binary = [call for call in recordings["asyncpg_pool"].calls() if "$15::text" in call.asked["statement"]]
    asked = next(call for call in binary if "prepare" not in call.asked)
    given = asked.asked["parameters"]
    assert given == asked.answer["rows"][0]
    assert given[:6] == [True, 7, 1 << 40, 1.5, {"$": ["decimal", "-12345.6700"]}, "gr\u00fcn"]
    assert given[6] == {"$": ["bytes", "AP8="]}
    assert given[9:11] == [
        {"$": ["datetime", "2026-02-03T04:05:06.000789", 0]},
        {"$": ["datetime", "2026-02-03T04:05:06.000789+00:00", 0]},
    ]
    assert given[11:] == [
        {"$": ["timedelta", [2, 3, 0]]},
        {"$": ["uuid", "00000000-0000-0000-0000-00000000004d"]},
        [1, None, 3],
        None,
    ]


LITERALS = """
true|false|1::int2|-5::int4|9007199254740993::int8|1.25::float4|'nan'::float8|'-infinity'::float8|0.1::float8|0::numeric
12345678901234567890.000100::numeric|-0.00001::numeric|1e20::numeric|'nan'::numeric|10000::numeric|0.5::numeric(10,4)
'x'::text|'y'::varchar(3)|'z'::char(3)|'\\xdeadbeef00'::bytea|'\\x6162'::bytea|'n'::name|7::oid
'2026-02-03'::date|'0001-01-01'::date|'04:05:06.7'::time|'2026-02-03 04:05:06.123456'::timestamp|'infinity'::timestamp
'2026-02-03 04:05:06+05:30'::timestamptz|'1999-12-31 23:59:59.999999+00'::timestamptz
'1 day 02:03:04.5'::interval|'-1 days'::interval|'-00:00:01.5'::interval|'1 year 2 mons'::interval|'0'::interval
'0b0a7d35-21a6-4c47-9a8c-9b9f6ab66e1a'::uuid|'{"a": [1, null]}'::json|'{"a":  1}'::jsonb
'{1,null,3}'::int[]|'{{1,2},{3,4}}'::int8[]|'{}'::text[]|array['a,b','NULL',null,'q"\\']|array[1.5,2]::numeric[]
array['2026-02-03 04:05:06+00'::timestamptz]|'[2:3]={7,8}'::int[]|array[true,false]|array['\\x00ff'::bytea]
""".replace("\n", "|")


def test_values_are_the_same_in_both_formats_of_the_wire(server):
    literals = [one for one in LITERALS.split("|") if one]
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{server[1]}/postgres") as connection:
        cursor = connection.cursor()
        for literal in literals:
            told = []
            for binary in (False, True):
                result = cursor.execute(f"select {literal}", binary=binary).pgresult
                assert result.fformat(0) == binary
                told.append(decode(result.ftype(0), int(binary), result.get_value(0, 0)))
            assert told[0] == told[1], literal
            assert "base64" not in json.dumps(told[1]), literal


def test_types_that_are_not_known_are_text_or_bytes_with_their_type(server):
    assert decode(869, 0, b"10.0.0.1") == "10.0.0.1"
    assert decode(869, 1, b"\2 \0\4\n\0\0\1") == {"oid": 869, "base64": "AiAABAoAAAE="}
    assert decode(23, 1, b"\1") == {"oid": 23, "base64": "AQ=="}


def test_a_password_is_not_needed_again(server):
    """SCRAM cannot be said again, so clients are let in; a connection in the middle of it goes on."""
    host, port = server
    with psycopg.connect(f"postgresql://postgres@{host}:{port}/postgres", autocommit=True) as connection:
        connection.execute("create role keeper login password 'of-the-key'")
        (rules,) = connection.execute("show hba_file").fetchone()
        old = Path(rules).read_text()
        Path(rules).write_text(f"host all keeper 127.0.0.1/32 scram-sha-256\n{old}")
        connection.execute("select pg_reload_conf()")

    def program(port: int) -> list[object]:
        given = {"host": host, "port": port, "user": "keeper", "password": "of-the-key"}

        async def run() -> object:
            connection = await asyncpg.connect(database="postgres", **given)
            try:
                return await connection.fetchval("select current_user")
            finally:
                await connection.close()

        with psycopg.connect(dbname="postgres", **given) as connection:
            return [connection.execute("select current_user").fetchone(), asyncio.run(run())]

    with recording(server) as pipe:
        assert program(pipe.port) == [("keeper",), "keeper"]
    recorded = Recorded([], pipe.dialogues)
    assert "SCRAM-SHA-256" in str(pipe.dialogues[0].text(Way.DOWN))
    with answering(PostgreSQL(), Pool(recorded.calls()), to=recorded.dialogues[0].to, speed=QUICK) as again:
        assert program(again) == [("keeper",), "keeper"]
    dialogue = pipe.dialogues[0]
    begin = next(step.message.end for step in read_steps(dialogue).steps if step.kind == "startup")
    for up, down in cuts(dialogue)[::7]:
        session, acts = PostgreSQL().resume(Pool(recorded.calls()), 1, Resume(dialogue, up, down))
        if up >= begin:  # a client that has not begun makes up words of its own
            got = said(acts) + said(session.feed(dialogue.text(Way.UP)[up:]))
            assert got == dialogue.text(Way.DOWN)[down:]


def test_a_connection_that_the_server_ended_is_ended_again(server):
    """The number of the server's process is the recorded one: what refers to it still does."""

    def program(port: int) -> list[object]:
        address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        connection = psycopg.connect(address, autocommit=True)
        with psycopg.connect(address, autocommit=True) as other:
            ended = other.execute(
                "select pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,)
            ).fetchone()
        with pytest.raises(psycopg.OperationalError) as failure:
            connection.execute("select 2")
        return [ended, failure.value.sqlstate, connection.closed]

    with recording(server) as pipe:
        first = program(pipe.port)
    assert first == [(True,), "57P01", True]
    recorded = Recorded([], pipe.dialogues)
    with answering(PostgreSQL(), Pool(recorded.calls()), to=recorded.dialogues[0].to) as port:
        assert program(port) == first


def test_damaged_dialogues_and_wrong_questions_never_raise(recordings):
    chance = random.Random(7)
    dialogues = [dialogue for recorded in recordings.values() for dialogue in recorded.dialogues]
    for _ in range(250):
        dialogue = damaged(chance, chance.choice(dialogues))
        calls = PostgreSQL().calls(dialogue)
        json.dumps([[call.asked, call.answer] for call in calls])
        session = PostgreSQL().open(Pool(calls), 1)
        for piece in dialogue.of(Way.UP):
            session.feed(piece.data)
        session.hang_up()
        asked, answered = dialogue.text(Way.UP), dialogue.text(Way.DOWN)
        where = Resume(dialogue, chance.randint(0, len(asked)), chance.randint(0, len(answered)))
        session, _ = PostgreSQL().resume(Pool(calls), 1, where)
        session.feed(asked[chance.randint(0, len(asked)) :])


def damaged(chance: random.Random, dialogue: Dialogue) -> Dialogue:
    """A copy that ends anywhere, in which some bytes were changed, lost or doubled."""
    pieces: list[DialoguePiece] = []
    places = {Way.UP: 0, Way.DOWN: 0}
    for piece in dialogue.pieces[: chance.randint(1, len(dialogue.pieces))]:
        data = bytearray(piece.data)
        if chance.random() < 0.2:
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 9)] = bytes(
                chance.randrange(256) for _ in range(chance.randint(0, 9))
            )
        if data:
            pieces.append(replace(piece, at=places[piece.way], data=bytes(data)))
            places[piece.way] += len(data)
    return replace(dialogue, pieces=pieces)
