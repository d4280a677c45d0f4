"""What a recorded answer costs beside the real one: microseconds of a call to a server, to its stub, and in the session alone.

    python benchmarks/stubs.py [--calls 2000] [--rounds 7] [--json]

Each section runs a real server and records some calls to it through the tests' pipe. Then the same calls are made over one
connection to the server and to a stub (a process of its own, pauses left out), in turn, round by round, and the session is fed the
same bytes without any socket. Told are medians over rounds, and the median of the rounds' ratios. Reads are asked, of which
500 different ones are recorded, and writes (PUT), each of which is recorded as often as it is asked.

Needs redis-server, and the packages of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from protocols.answering import answering
from protocols.recording import recording
from relive.protocols.call import Call
from relive.protocols.http import Http
from relive.protocols.pool import Pool
from relive.protocols.redis import Redis
from relive.protocols.session import Protocol
from support.ports import free_port

_RECORDED = 500
_HTTP_SERVICE = """
import asyncio, sys
async def app(scope, receive, send):
    if scope["type"] == "http":
        await receive()
        body = b"x" * 200
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"200")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
import uvicorn
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", lifespan="off", access_log=False)
"""


@dataclass(frozen=True)
class Section:
    """A protocol to measure.

    Attributes:
        running: a context in which a server listens; its address.
        question: the bytes of the call of a number; ends: whether what came is the whole answer.
    """

    name: str
    protocol: Protocol
    running: Callable[[], contextlib.AbstractContextManager[tuple[str, int]]]
    question: Callable[[int], bytes]
    ends: Callable[[bytes], bool]


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 30
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert time.monotonic() < until, f"{command[0]} does not listen"
                time.sleep(0.02)
            yield "127.0.0.1", port
        finally:
            process.terminate()
            process.wait()


def _redis() -> contextlib.AbstractContextManager[tuple[str, int]]:
    port = free_port()
    return _process(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""], port)


def _http() -> contextlib.AbstractContextManager[tuple[str, int]]:
    port = free_port()
    return _process([sys.executable, "-c", _HTTP_SERVICE, str(port)], port)


def _bulk(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


SECTIONS = [
    Section(
        "redis GET",
        Redis(),
        _redis,
        lambda number: _bulk(b"GET", b"key:%d" % (number % _RECORDED)),
        lambda got: got.endswith(b"\r\n"),
    ),
    Section(
        "http GET",
        Http(),
        _http,
        lambda number: b"GET /orders?id=%d HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n" % (number % _RECORDED),
        lambda got: got.endswith(b"x" * 200),
    ),
    Section(
        "http PUT of JSON",
        Http(),
        _http,
        lambda number: _put(
            b'{"order": %d, "lines": [{"n": 1}, {"n": 2}], "note": "%b"}' % (number % _RECORDED, b"y" * 300)
        ),
        lambda got: got.endswith(b"x" * 200),
    ),
]


def _put(body: bytes) -> bytes:
    head = b"PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [_measure(section, options.calls, options.rounds) for section in SECTIONS]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':20} {'server':>9} {'stub':>9} {'session':>9} {'stub/server':>12}   [us per call, medians]")
    for row in rows:
        print(
            f"{row['name']:20} {row['server_us']:9.1f} {row['stub_us']:9.1f} {row['session_us']:9.1f} {row['ratio']:12.2f}"
        )


def _measure(section: Section, calls: int, rounds: int) -> dict[str, object]:
    with section.running() as server:
        with recording(server) as pipe:
            _ask(("127.0.0.1", pipe.port), section, _RECORDED)
        recorded = [call for one in pipe.dialogues for call in section.protocol.calls(one)]
        with _stub(section, recorded * max(1, calls * rounds // _RECORDED + 2), server) as stub:
            pairs = [(_ask(server, section, calls), _ask(stub, section, calls)) for _ in range(rounds)]
    alone = [_alone(section, recorded, server, calls) for _ in range(rounds)]
    return {
        "name": section.name,
        "recorded": len(recorded),
        "server_us": statistics.median(pair[0] for pair in pairs),
        "stub_us": statistics.median(pair[1] for pair in pairs),
        "session_us": statistics.median(alone),
        "ratio": statistics.median(pair[1] / pair[0] for pair in pairs),
    }


def _renumbered(recorded: list[Call]) -> list[Call]:
    """Copies of calls as calls of other connections, so that each can be used up by itself."""
    return [replace(call, dialogue=at // _RECORDED + 1) for at, call in enumerate(recorded)]


@contextlib.contextmanager
def _stub(section: Section, recorded: list[Call], to: tuple[str, int]) -> Iterator[tuple[str, int]]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def serve() -> None:
        pool = Pool(_renumbered(recorded))
        with answering(section.protocol, pool, to=to, speed=1e9) as port:
            there.send(port)
            there.recv()

    process = context.Process(target=serve)
    process.start()
    try:
        yield "127.0.0.1", here.recv()
    finally:
        here.send(None)
        process.join()


def _ask(server: tuple[str, int], section: Section, calls: int) -> float:
    """Microseconds of a call over one connection."""
    questions = [section.question(number) for number in range(calls)]
    with socket.create_connection(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        for question in questions:
            connection.sendall(question)
            got = b""
            while not section.ends(got):
                part = connection.recv(65536)
                assert part, f"{section.name}: the connection ended after {got!r}"
                got += part
        took = time.perf_counter() - began
    return took / calls * 1e6


def _alone(section: Section, recorded: list[Call], to: tuple[str, int], calls: int) -> float:
    """Microseconds of a call in the session alone."""
    pool = Pool(_renumbered(recorded * (calls // _RECORDED + 1)))
    session = section.protocol.open(pool, 1, to=to)
    questions = [section.question(number) for number in range(calls)]
    began = time.perf_counter()
    for question in questions:
        session.feed(question)
    return (time.perf_counter() - began) / calls * 1e6


if __name__ == "__main__":
    assert threading.active_count() == 1
    main()
