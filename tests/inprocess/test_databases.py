"""Services' queries and Redis commands: recorded as documented, and answered again when the server is gone.

All scenarios of ``programs/`` are recorded side by side against one server of each kind; then the servers are stopped, and every
scenario runs again in its own process, with the connections it had left open and with new ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from relive.recording.events import EventKind
from support.servers import (
    HAS_MARIADB,
    HAS_POSTGRES,
    HAS_REDIS,
    mariadb_server,
    postgres_server,
    redis_server,
)

from .conftest import INPROCESS, LIBRARIES_PYTHON, each_python

PROGRAMS = Path(__file__).parent / "programs"
_SERVERS = {
    "postgres": ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"),
    "redis": ("redis", "redis_async"),
    "mariadb": ("pymysql",),
}


# Their second run ends its transactions otherwise than the first, which was recorded.
_ENDS = {"postgres": ("ends",), "mariadb": ("ends_mysql",)}
_THERE = {"postgres": HAS_POSTGRES, "redis": HAS_REDIS, "mariadb": HAS_MARIADB}
_START = {"postgres": postgres_server, "redis": redis_server, "mariadb": mariadb_server}


class Twice:
    """A scenario under way: recorded, and then replayed."""

    def __init__(self, scenario: str, address: str, rings: Path) -> None:
        rings.mkdir()
        options = {"rings": str(rings), "off": ["clock", "random"]}
        environment = os.environ | {"PYTHONPATH": str(INPROCESS), "RELIVE_RECORDER": json.dumps(options)}
        command = [LIBRARIES_PYTHON, PROGRAMS / "twice.py", PROGRAMS / f"with_{scenario}.py", address]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def __enter__(self) -> Twice:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def recorded(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "recorded\n", line + self._process.communicate()[1]

    def go_on(self) -> dict[str, Any]:
        out, err = self._process.communicate("go on\n", timeout=60)
        assert self._process.returncode == 0, err
        return {**json.loads(out), "err": err}


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    rings = tmp_path_factory.mktemp("rings")
    running: dict[str, Twice] = {}
    addresses: dict[str, str] = {}
    with ExitStack() as ending, ExitStack() as stack:
        for server, scenarios in _SERVERS.items():
            if _THERE[server]:
                address = addresses[server] = stack.enter_context(_START[server]())
                for number, name in enumerate((*scenarios, *_ENDS.get(server, ()))):
                    apart = f"{address}/{number}" if server == "redis" else address  # a database of its own
                    running[name] = ending.enter_context(Twice(name, apart, rings / name))
        for twice in running.values():
            twice.recorded()
        switched_off = _switched_off(addresses, rings)
        stack.close()
        return {"switched off": switched_off} | {name: twice.go_on() for name, twice in running.items()}


def _switched_off(addresses: dict[str, str], rings: Path) -> dict[str, Any]:
    if not {"postgres", "redis"} <= set(addresses):
        return {}
    environment = os.environ | {
        "PYTHONPATH": str(INPROCESS),
        "RELIVE_RECORDER": json.dumps({"rings": str(rings)}),
    }
    command = [
        LIBRARIES_PYTHON,
        PROGRAMS / "switched_off.py",
        addresses["postgres"],
        addresses["redis"] + "/2",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr}


@pytest.fixture
def replay(replays: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param not in replays:
        pytest.skip(f"no server for {request.param}")
    return replays[request.param]


def on(*scenarios: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("replay", scenarios, indirect=True)


every_scenario = on(*(name for scenarios in _SERVERS.values() for name in scenarios))


@every_scenario
def test_the_same_calls_give_the_same_values_without_a_server(replay):
    """Types too; and no call asks for what the recording does not hold."""
    assert replay["second"] == replay["first"]
    assert replay["misses"] == []
    assert replay["err"] == ""


@on(*(name for scenarios in _ENDS.values() for name in scenarios))
def test_a_transaction_that_ends_otherwise_than_recorded_ends_all_the_same(replay):
    assert replay["second"] == replay["first"]
    assert replay["misses"] == []
    assert replay["err"] == ""
    asked = [
        one["statement"].rstrip(";").upper().split()[0]
        for one in _asked(replay["replayed"])
        if "statement" in one
    ]
    assert "COMMIT" in asked
    assert "ROLLBACK" not in asked


@every_scenario
def test_only_what_an_open_connection_did_once_is_not_asked_again(replay):
    upkeep = ("CONNECT", "set_config", "pg_type", "select pg_catalog.version()", "current_schema()", "show ")
    for asked in replay["left"]:
        if "argv" in asked or "path" in asked:  # what psycopg reads and runs as it is loaded
            continue
        assert (
            "prepare" in asked or any(word in asked["statement"] for word in upkeep) or _is_transaction(asked)
        )


def _is_transaction(asked: dict[str, Any]) -> bool:
    return asked["statement"].split()[0] in (
        "BEGIN",
        "SAVEPOINT",
        "RELEASE",
        "ROLLBACK",
        "BEGIN;",
        "ROLLBACK;",
    )


@every_scenario
def test_what_is_replayed_is_recorded_in_the_same_order(replay):
    """But for what an open connection did once."""
    left, first = list(replay["left"]), []
    for asked in _asked(replay["events"]):
        if asked in left:
            left.remove(asked)
        else:
            first.append(asked)
    # A call that stands there several times was left out at its first place, and may be missing at its last.
    assert sorted(map(json.dumps, first)) == sorted(map(json.dumps, _asked(replay["replayed"])))
    if not replay["left"]:
        assert first == _asked(replay["replayed"])
    answers = [[one.get("answer"), one.get("error")] for one in replay["events"]]
    assert all(
        [one.get("answer"), one.get("error")] in answers for one in replay["replayed"] if "asked" in one
    )


def _asked(events: list[dict[str, Any]]) -> list[Any]:
    return [one["asked"] for one in events if "asked" in one]


def queries(replay: dict[str, Any], text: str) -> list[dict[str, Any]]:
    return [one for one in replay["events"] if text in one.get("asked", {}).get("statement", "")]


@on("psycopg")
def test_a_query_has_its_parameters_and_rows(replay):
    found = queries(replay, "select * from things where id = %(id)s")[0]
    assert found["kind"] == "query"
    assert found["asked"] == {
        "system": "postgresql",
        "database": "postgres",
        "statement": "select * from things where id = %(id)s",
        "parameters": {"id": 1},
    }
    answer = found["answer"]
    assert answer["columns"][:3] == ["id", "name", "price"]
    assert answer["rows"][0][:3] == [1, "a", "1.50"]
    assert answer["rowcount"] == 1
    assert found["ns"] > 0


@on("psycopg", "psycopg2", "asyncpg")
def test_an_error_is_recorded_as_what_it_was(replay):
    errors = [one["error"] for one in replay["events"] if "error" in one]
    assert any("UniqueViolation" in error["type"] for error in errors)
    assert all(error["type"].partition(".")[0] in ("psycopg", "psycopg2", "asyncpg") for error in errors)


@on("psycopg", "psycopg2")
def test_many_rows_are_beside_the_event(replay):
    (found,) = queries(replay, "repeat('x', 1000)")
    assert "rows" not in found["answer"] and found["answer"]["rowcount"] == 200
    assert found["file"].endswith(".body") and found["bytes"] > 200_000


@on("sqlalchemy")
def test_a_query_of_sqlalchemy_is_one_event(replay):
    inserts = [one for one in queries(replay, "INSERT INTO alchemical") if "prepare" not in one["asked"]]
    assert len([one for one in inserts if "error" in one]) == 3
    selects = [one for one in queries(replay, "WHERE alchemical.name = ") if "prepare" not in one["asked"]]
    assert len(selects) == 3
    for one in selects:
        given = one["asked"]["parameters"]
        assert list(given.values() if type(given) is dict else given) == ["a"]
        assert one["answer"]["rowcount"] == 1


@on("django")
def test_a_query_of_django_is_one_event(replay):
    (found,) = queries(replay, 'FROM "things_thing" WHERE "things_thing"."name" = %s')
    assert found["asked"]["parameters"] == ["a"]
    assert found["answer"]["rows"][0][:2] == [1, "a"]
    (updated,) = queries(replay, 'UPDATE "things_thing"')
    assert updated["answer"]["rowcount"] == 2
    statements = [one.get("asked", {}).get("statement") for one in replay["events"]]
    assert statements.count("COMMIT") == statements.count("BEGIN")
    assert statements.count("BEGIN") in (2, 3)  # from Django 6 on one insert is no transaction


@on("psycopg", "psycopg2", "pymysql")
def test_a_cursor_is_freed_at_once(replay):
    assert replay["first"][1] == replay["second"][1] == ["bool", "True"]


def test_connections_go_on_when_the_recorder_switched_itself_off(replays):
    done = replays["switched off"]
    if not done:
        pytest.skip("needs PostgreSQL and Redis")
    assert done["status"] == 0, done["err"]
    assert len(done["err"].splitlines()) == 1 and "switched off" in done["err"]
    assert done["out"].splitlines() == ["[(3,)] [(2,)] [True, 2] b'2' 4"] * 3


@on("pymysql")
def test_passwords_are_not_recorded(replay):
    assert "a-password-of-mine" not in json.dumps(replay["events"])
    assert queries(replay, "CONNECT")[0]["answer"]["thread"] > 0


@on("redis", "redis_async")
def test_commands_are_recorded_as_they_were_given(replay):
    commands = [one["asked"]["command"] for one in replay["events"] if "command" in one.get("asked", {})]
    assert ["HSET", "p2:h", "x", 1, "y", "two"] in commands
    auth = next(command for command in commands if command[0] == "AUTH")
    assert all(word.startswith("<secret:") for word in auth[1:])
    assert "a-password-of-mine" not in json.dumps(replay["events"])
    queued = [["SET", "p3:n", 1], ["INCRBY", "p3:n", 1], ["HGETALL", "p3:h"]]
    (pipeline,) = [one for one in replay["events"] if one.get("asked", {}).get("commands") == queued]
    assert pipeline["asked"]["transaction"] is True
    assert pipeline["answer"][-1] == ["OK", 2, {"$": ["dict", [["x", "1"], ["y", "two"]]]}]
    assert [one for one in replay["events"] if "message" in one]


# -- sqlite3 -----------------------------------------------------------------------------------------------------------

SQLITE = """
import gc, sqlite3, weakref
from relive_recorder.kinds import query
from relive_recorder.recorder import recorder
connection = sqlite3.connect(":memory:")
assert isinstance(connection, sqlite3.Connection) and type(connection) is sqlite3.Connection
assert repr(type(connection)) == "<class 'sqlite3.Connection'>"
with connection:
    connection.execute("create table t (a integer primary key, b text unique)")
    connection.executemany("insert into t (b) values (?)", ((letter,) for letter in "abcde"))
print(list(connection.execute("select * from t where a > :a", {"a": 1})))
cursor = connection.cursor()
cursor.execute("select b from t")
print(cursor.fetchone(), cursor.fetchmany(2), cursor.fetchall(), cursor.fetchone())
try:
    connection.execute("insert into t (b) values (?)", ("a",))
except sqlite3.IntegrityError as error:
    print(error)
connection.rollback()
connection.executescript("create table u (a); insert into u values (1);")
connection.row_factory = sqlite3.Row
print(dict(connection.execute("select count(*) as n from u").fetchone()))
gone = weakref.ref(cursor)
gc.disable()
del cursor
assert gone() is None
class Own(sqlite3.Connection):
    def __init__(self, *given, more=None, **named):
        super().__init__(*given, **named)
own = sqlite3.connect(":memory:", factory=Own)
assert type(own) is Own
class OwnCursor(sqlite3.Cursor):
    pass
assert type(own.cursor(OwnCursor)) is OwnCursor
rows = own.execute("select 1 union select 2 union select 3")
for row in rows:
    if row[0] == 2:
        query.flush_rows()
        print("seen")
        break
def half():
    yield (1,)
    raise LookupError("no more")
own.execute("create table v (a)")
try:
    own.executemany("insert into v values (?)", half())
except LookupError as error:
    print(error)
recorder.switch_off(ValueError("as a test"))
print(own.execute("select count(*) from v").fetchone())
own.commit()
own.close()
"""


@each_python
def test_sqlite_works_as_before_and_is_recorded(run_recorded, python):
    ran = run_recorded(SQLITE, python, off=["clock", "random"])
    assert ran.status == 0, ran.err
    assert "switched off" in ran.err and len(ran.err.splitlines()) == 1
    assert ran.out.splitlines() == [
        "[(2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')]",
        "('a',) [('b',), ('c',)] [('d',), ('e',)] None",
        "UNIQUE constraint failed: t.b",
        "{'n': 1}",
        "seen",
        "no more",
        "(1,)",
    ]
    found = {one.fields["asked"]["statement"]: one.fields for one in ran.of(EventKind.QUERY)}
    assert found["insert into v values (?)"]["error"]["type"] == "builtins.LookupError"
    assert found["insert into v values (?)"]["asked"]["parameters"] == [[1]]
    assert found["insert into t (b) values (?)"]["error"]["type"] == "sqlite3.IntegrityError"
    assert found["select * from t where a > :a"]["asked"]["parameters"] == {"a": 1}
    assert found["select * from t where a > :a"]["answer"]["columns"] == ["a", "b"]
    assert {"COMMIT", "ROLLBACK"} <= set(found)


@each_python
def test_rows_of_sqlite_belong_to_their_query(run_recorded, python):
    ran = run_recorded(SQLITE, python, off=["clock", "random"])
    queries = {one.seq: one.fields["asked"]["statement"] for one in ran.of(EventKind.QUERY)}
    rows: dict[str, list[Any]] = {}
    for one in ran.of(EventKind.ROWS):
        rows.setdefault(queries[one.fields["query"]], []).extend(one.fields["rows"])
    assert rows["select * from t where a > :a"] == [[2, "b"], [3, "c"], [4, "d"], [5, "e"]]
    assert rows["select b from t"] == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert rows["select count(*) as n from u"] == [[1]]
    assert [2] in rows["select 1 union select 2 union select 3"]  # the one that was worked on


def test_the_row_that_was_worked_on_is_recorded_before_the_failure(run_recorded):
    ran = run_recorded("""
import sqlite3
found = sqlite3.connect(":memory:").execute("select 1 union select 2 union select 3")
for row in found:
    if row[0] == 2:
        raise LookupError("this row")
""")
    kinds = [event.kind for event in ran.events if event.kind in (EventKind.ROWS, EventKind.FAILURE)]
    assert kinds == [EventKind.ROWS, EventKind.FAILURE]
    assert ran.of(EventKind.ROWS)[0].fields["rows"] == [[1], [2]]


def test_requests_keep_apart(run_recorded):
    """Threads that work for different requests, on connections of their own."""
    ran = run_recorded(
        "import sqlite3, threading\nfrom relive_recorder import context\nfrom relive_recorder.recorder import recorder\n"
        "gate = threading.Barrier(3)\n"
        "def work(number):\n"
        "    context.begin(context.Request(number, {}))\n"
        "    connection = sqlite3.connect(':memory:')\n"
        "    for one in range(20):\n"
        "        gate.wait()\n"
        "        connection.execute('select ?', (number * 100 + one,)).fetchall()\n"
        "threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]\n"
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n",
        off=["clock", "random"],
    )
    assert ran.err == ""
    for number in (1, 2, 3):
        mine = [event for event in ran.events if event.request == number]
        asked = [event.fields["asked"]["parameters"] for event in mine if event.kind is EventKind.QUERY]
        assert asked == [[number * 100 + one] for one in range(20)]
        rows = [event.fields["rows"] for event in mine if event.kind is EventKind.ROWS]
        assert rows == [[[number * 100 + one]] for one in range(20)]
        assert {event.fields["lane"] for event in mine} == {1}


def test_queries_of_aiosqlite_belong_to_their_request(run_recorded):
    ran = run_recorded(
        "import asyncio\nfrom relive_recorder import context\n"
        "from sqlalchemy import text\nfrom sqlalchemy.ext.asyncio import create_async_engine\n"
        "async def work(number):\n"
        "    context.begin(context.Request(number, {}))\n"
        "    engine = create_async_engine('sqlite+aiosqlite:///:memory:')\n"
        "    async with engine.connect() as connection:\n"
        "        for one in range(5):\n"
        "            found = await connection.execute(text('select :one'), {'one': number * 100 + one})\n"
        "            assert found.scalar_one() == number * 100 + one\n"
        "    await engine.dispose()\n"
        "async def main():\n    await asyncio.gather(*(work(number) for number in (1, 2)))\n"
        "asyncio.run(main())\n",
        off=["clock", "random"],
    )
    assert (ran.status, ran.err) == (0, "")
    for number in (1, 2):
        mine = [event for event in ran.of(EventKind.QUERY) if event.request == number]
        asked = [event.fields["asked"].get("parameters") for event in mine]
        assert [one for one in asked if one] == [[number * 100 + one] for one in range(5)]
        # SQLAlchemy gives the connection back in a task of its own; that is the last ROLLBACK.
        *lanes, last = [event.fields["lane"] for event in mine]
        assert (set(lanes), last == 1) == ({1}, False)


def test_secrets_among_parameters_become_placeholders(run_recorded):
    ran = run_recorded(
        "import sqlite3\nfrom relive_recorder.recorder import recorder\n"
        "recorder.scrubber.learn('hunter22-and-more')\n"
        "connection = sqlite3.connect(':memory:')\n"
        "for _ in range(2):\n"
        "    connection.execute('select :password', {'password': 'only-by-its-name'}).fetchall()\n"
        "    connection.execute('select ?', ('hunter22-and-more',)).fetchall()\n"
        "    connection.execute('select ?', (b'hunter22-and-more',)).fetchall()\n",
        off=["clock", "random"],
    )
    assert ran.err == ""
    told = json.dumps(
        [dict(event.fields) for event in ran.events if event.kind is not EventKind.PROCESS_STARTED]
    )
    assert "hunter22" not in told and "only-by-its-name" not in told
    asked = [event.fields["asked"] for event in ran.of(EventKind.QUERY)]
    assert asked[:3] == asked[3:]


def test_a_statement_that_comes_again_loses_what_is_learned_to_be_secret_meanwhile(run_recorded):
    ran = run_recorded(
        "import sqlite3\nfrom relive_recorder.recorder import recorder\n"
        "first, second = (sqlite3.connect(':memory:') for _ in range(2))\n"
        "statement = \"select 'seen-and-then-learned', ?\"\n"
        "for _ in range(4):\n"
        "    first.execute(statement, (1,))\n"
        "    second.cursor().execute(statement, [2])\n"
        "recorder.scrubber.learn('seen-and-then-learned')\n"
        "for _ in range(4):\n"
        "    first.execute(statement, (1,))\n"
        "    second.cursor().execute(statement, [2])\n",
        off=["clock", "random"],
    )
    assert ran.err == ""
    asked = [event.fields["asked"] for event in ran.of(EventKind.QUERY)]
    assert [one["parameters"] for one in asked] == [[1], [2]] * 8
    assert [one["statement"].startswith("select 'seen-and") for one in asked] == [True] * 8 + [False] * 8
    assert len({one["statement"] for one in asked}) == 2


def test_large_parameters_and_many_rows_are_bounded(run_recorded):
    ran = run_recorded(
        "import sqlite3\nconnection = sqlite3.connect(':memory:')\n"
        "connection.execute('create table t (a, b)')\n"
        "connection.execute('insert into t values (?, ?)', ('x' * 100_000, b'y' * 10_000_000))\n"
        "connection.executemany('insert into t values (?, ?)', ((str(n), None) for n in range(20_000)))\n"
        "print(len(connection.execute('select * from t').fetchall()))\n",
        off=["clock", "random"],
        body_bytes=100_000,
    )
    assert (ran.status, ran.err, ran.out) == (0, "", "20001\n")
    insert, many = (event.fields["asked"] for event in ran.of(EventKind.QUERY)[1:3])
    assert [value["bytes"] for value in insert["parameters"]] == [100_000, 10_000_000]
    assert many["parameters"]["$"] == ["cut", 20_000] and many["parameters"]["bytes"] > 64_000
    (rows,) = ran.of(EventKind.ROWS)
    assert rows.fields["rows"][0] == [
        {"$": ["long", "x" * 1024, 100_000, zlib.crc32(b"x" * 100_000)]},
        {"$": ["long", {"$": ["utf8", "y" * 1024]}, 10_000_000, zlib.crc32(b"y" * 10_000_000)]},
    ]
    assert rows.fields["rows"][1:3] == [["0", None], ["1", None]]
    assert rows.fields["rows_cut"] == 20_001 - len(rows.fields["rows"]) > 10_000
    assert (rows.data, "file" in rows.fields) == (b"", False)


def test_in_a_replay_sqlite_is_asked_really(run_recorded):
    """And of a long value it is said whether a placeholder stands in it: the recorded one had another length then."""
    ran = run_recorded(
        "import sqlite3\nfrom relive_recorder import calls\nfrom relive_recorder.recorder import REPLAY, recorder\n"
        "from relive_recorder.ring import MODE\n"
        "def refuse(channel, asked): raise AssertionError(asked)\n"
        "calls.answer_with(refuse, lambda kind, source: None)\n"
        "recorder._ring.words[MODE] = REPLAY\n"
        "connection = sqlite3.connect(':memory:')\n"
        "print(connection.execute('select 1').fetchall())\n"
        "for more in ('', '<secret:01234567>'):\n"
        "    connection.execute('select ?', ('x' * 100_000 + more,)).fetchone()\n",
        off=["clock", "random"],
    )
    assert (ran.err, ran.out) == ("", "[(1,)]\n")
    assert [event.kind for event in ran.events[1:3]] == [EventKind.QUERY, EventKind.ROWS]
    short, same, other = ran.of(EventKind.ROWS)
    assert short.fields["rows"] == [[1]]
    assert ["has_placeholders" in one.fields for one in (same, other)] == [False, True]
