"""Messages of PostgreSQL's protocol, whatever the pieces in which their bytes come, and whatever the bytes."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.protocols.postgres.framing import BackendFramer, FrontendFramer, Message
from relive.protocols.postgres.messages import (
    build,
    read_bind,
    read_copy_columns,
    read_error,
    read_execute,
    read_named,
    read_oids,
    read_parse,
    read_row,
    read_row_description,
    read_startup,
    read_status,
)
from relive.protocols.postgres.statements import describe_statement, is_read, split, state_after, words_of

from .conversations import OPENING, STARTUP, bind, execute, parse, query, selected

UP = (
    struct.pack("!II", 8, 80877103) + STARTUP + query("select 1") + parse("x", "y", [1, 2]) + bind(b"1", None)
)
UP += execute("p", 5) + build("S")
DOWN = b"N" + OPENING + selected("a", "b", "c")


def all_of(framer: FrontendFramer | BackendFramer, data: bytes, cuts: list[int]) -> list[Message]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [one for begin, end in itertools.pairwise(places) for one in framer.feed(data[begin:end])]


def backend() -> BackendFramer:
    framer = BackendFramer()
    framer.expect_bytes(1)
    return framer


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_messages_are_the_same_however_their_bytes_come(cuts):
    up, down = all_of(FrontendFramer(), UP, cuts), all_of(backend(), DOWN, cuts)
    assert [message.kind for message in up] == ["ssl", "startup", "Q", "P", "B", "E", "S"]
    assert "".join(message.kind for message in down) == "byte" + "RSSKZ" + "TDDDC"
    for messages, data in ((up, UP), (down, DOWN)):
        assert [message.begin for message in messages] == [0, *(message.end for message in messages[:-1])]
        assert messages[-1].end == len(data)
        assert all(data[message.begin : message.end].endswith(message.body) for message in messages)


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_no_bytes_make_it_raise(data, cuts):
    for framer in (FrontendFramer(), FrontendFramer(opened=True), backend()):
        messages = all_of(framer, data, cuts)
        assert sum(message.end - message.begin for message in messages) == framer.place
        assert data[framer.place :] == framer.rest


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_no_content_makes_a_reader_raise(data):
    for read in (
        *(read_startup, read_parse, read_bind, read_named, read_execute, read_oids, read_row_description),
        *(read_row, read_copy_columns, read_error, read_status),
    ):
        read(data)


@pytest.mark.parametrize(
    ("opened", "data"),
    [
        (False, struct.pack("!II", 10_001, 3 << 16)),
        (False, struct.pack("!II", 7, 3 << 16)),
        (False, struct.pack("!II", 8, 2 << 16)),
        (True, b"Q" + struct.pack("!I", 1 << 30)),
        (True, b"Q" + struct.pack("!I", 3)),
        (True, b"S" + struct.pack("!I", 10_001)),
        (True, b"\0"),
    ],
)
def test_lengths_and_letters_that_cannot_be_end_it_at_once(opened, data):
    framer = FrontendFramer(opened=opened)
    assert framer.feed(data) == []
    assert framer.broken


def test_a_long_message_takes_no_memory_before_it_comes():
    framer = FrontendFramer(opened=True)
    assert framer.feed(b"Q" + struct.pack("!I", (1 << 30) - 1) + b"select") == []
    assert (framer.broken, len(framer.rest)) == (None, 11)


# -- statements --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("select 1", True),
        ("  -- why\n/* and */ SELECT 'insert into'", True),
        ("with a as (select 1) select * from a", True),
        ("with a as (insert into t values (1) returning 1) select * from a", False),
        ("select * from t for update", False),
        ("select nextval('s')", False),
        ("select pg_advisory_lock(1)", False),
        ("select * into t from u", False),
        ("show timezone", True),
        ("explain select 1", True),
        ("explain analyze delete from t", False),
        ("update t set a = 1", False),
        ("call something()", False),
        ("", False),
    ],
)
def test_what_only_reads_is_told_from_what_may_write(statement, reads):
    assert is_read(statement) is reads


def test_names_that_libraries_make_are_not_compared():
    assert describe_statement("SAVEPOINT __asyncpg_savepoint_1f__;") == "SAVEPOINT <name>;"
    assert (
        describe_statement('DECLARE "c_7f00_1" CURSOR FOR SELECT 1') == 'DECLARE "<name>" CURSOR FOR SELECT 1'
    )
    assert describe_statement("select 's1_x1'") == "select 's1_x1'"


def test_statements_of_a_query_are_split_outside_of_quotes():
    assert split("begin; select ';', \";\", $a$;$a$ -- ; so\n; /* ; */ commit;;") == [
        "begin",
        "select ';', \";\", $a$;$a$ -- ; so",
        "commit",
    ]


@pytest.mark.parametrize(
    ("state", "statement", "tags", "after"),
    [
        ("I", "begin", ("BEGIN",), "T"),
        ("T", "rollback to savepoint a", ("ROLLBACK",), "T"),
        ("E", "rollback", ("ROLLBACK",), "I"),
        ("T", "commit and chain", ("COMMIT",), "T"),
        ("T", "commit and no chain", ("COMMIT",), "I"),
        ("I", "begin; insert into t values (1); commit", ("BEGIN", "INSERT 0 1", "COMMIT"), "I"),
        ("T", "select 1", ("SELECT 1",), "T"),
    ],
)
def test_the_state_after_a_statement_follows_its_tags(state, statement, tags, after):
    assert state_after(state, statement, tags) == after


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_it_raise(text):
    is_read(text), split(text), describe_statement(text), words_of(text)
