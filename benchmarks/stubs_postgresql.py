"""What recorded answers of PostgreSQL cost beside real ones: microseconds of a query to a server, its stub, the session alone.

    python benchmarks/stubs_postgresql.py [--calls 500] [--rounds 7] [--json]

The same client program makes the same queries over one connection to the server and to a stub (a process of its own, pauses left
out), in turn, round by round; then the recorded bytes are fed to the session without any socket. Told are medians over rounds, and
the median of the rounds' ratios. Reads are given again; of the writes as many are recorded as are asked.

Needs a PostgreSQL server and the packages of the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psycopg
import psycopg2

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from protocols.answering import answering
from protocols.recording import recording
from relive.protocols.call import Call
from relive.protocols.pool import Pool
from relive.protocols.postgres import PostgreSQL
from relive.recording.dialogues import Dialogue, Way
from support.servers import postgres_server

_READ = "select id, name, price from things where id = "
_WRITE = "update things set price = price + 1 where id = "
_THINGS = 100


def _psycopg(port: int, calls: int, statement: str) -> float:
    with psycopg.connect(_address(port), autocommit=True) as connection, connection.cursor() as cursor:
        began = time.perf_counter()
        for number in range(calls):
            cursor.execute(statement + "%s", (number % _THINGS,))
        return time.perf_counter() - began


def _psycopg2(port: int, calls: int, statement: str) -> float:
    with contextlib.closing(psycopg2.connect(_address(port))) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        began = time.perf_counter()
        for number in range(calls):
            cursor.execute(statement + "%s", (number % _THINGS,))
        return time.perf_counter() - began


def _asyncpg(port: int, calls: int, statement: str) -> float:
    async def run() -> float:
        connection = await asyncpg.connect(_address(port))
        try:
            began = time.perf_counter()
            for number in range(calls):
                await connection.fetch(statement + "$1", number % _THINGS)
            return time.perf_counter() - began
        finally:
            await connection.close()

    return asyncio.run(run())


CASES: list[tuple[str, Callable[[int, int, str], float], str]] = [
    ("psycopg, read", _psycopg, _READ),
    ("psycopg, write", _psycopg, _WRITE),
    ("psycopg2, read", _psycopg2, _READ),
    ("asyncpg, read", _asyncpg, _READ),
    ("asyncpg, write", _asyncpg, _WRITE),
]


def _address(port: int) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with postgres_server() as address:
        port = int(address.rpartition(":")[2].partition("/")[0])
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("create table things (id int primary key, name text, price numeric)")
            connection.execute(
                "insert into things select n, 'thing ' || n, n * 1.5 from generate_series(0, 99) n"
            )
        rows = [_measure(port, *case, options.calls, options.rounds) for case in CASES]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':16} {'server':>9} {'stub':>9} {'session':>9} {'stub/server':>12}   [us per query, medians]")
    for row in rows:
        numbers = (
            f"{row['server_us']:9.1f} {row['stub_us']:9.1f} {row['session_us']:9.1f} {row['ratio']:12.2f}"
        )
        print(f"{row['name']:16} {numbers}")


def _measure(
    port: int, name: str, program: Callable[[int, int, str], float], statement: str, calls: int, rounds: int
) -> dict[str, object]:
    with recording(("127.0.0.1", port)) as pipe:
        for _ in range(rounds if statement is _WRITE else 1):
            program(pipe.port, calls, statement)
    recorded = [call for dialogue in pipe.dialogues for call in PostgreSQL().calls(dialogue)]
    with _stub(recorded) as stub:
        pairs = [(program(port, calls, statement), program(stub, calls, statement)) for _ in range(rounds)]
    alone = [_alone(pipe.dialogues[0]) for _ in range(rounds)]
    return {
        "name": name,
        "server_us": statistics.median(pair[0] for pair in pairs) / calls * 1e6,
        "stub_us": statistics.median(pair[1] for pair in pairs) / calls * 1e6,
        "session_us": statistics.median(alone) / calls * 1e6,
        "ratio": statistics.median(pair[1] / pair[0] for pair in pairs),
    }


@contextlib.contextmanager
def _stub(recorded: list[Call]) -> Iterator[int]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def serve() -> None:
        with answering(PostgreSQL(), Pool(recorded), to=recorded[0].to, speed=1e9) as port:
            there.send(port)
            there.recv()

    process = context.Process(target=serve)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join()


def _alone(dialogue: Dialogue) -> float:
    """Seconds that the session takes for all that was asked on one connection."""
    session = PostgreSQL().open(Pool(PostgreSQL().calls(dialogue)), 1, to=dialogue.to)
    pieces = [piece.data for piece in dialogue.of(Way.UP)]
    began = time.perf_counter()
    for data in pieces:
        session.feed(data)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
