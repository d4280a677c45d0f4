"""The services of ``corpus/``: what each declares, how it is started, and the clients and servers around it.

Each lies in a directory of its own with ``service.toml``:

- ``what``, ``language``: for people; ``needs``: programs without which it is left out.
- ``build``, ``command``, ``environment``: with ``{python}``, ``{here}``, ``{corpus}``, ``{built}``, ``{data}`` (a new directory),
  ``{port}``, ``{rates}`` and ``{feed}`` (ports of servers of the benchmark; ``{rates}`` may be "0", or a path).
- ``options``: of ``relive run``; ``kind``: of the incident that is to come.
- ``healthy``, ``poison``, ``fail``: paths, one after the other; a list among them is asked at one time, as ``fail`` of a hang is.
  ``poison`` makes the state in which ``fail`` fails.
- ``connection``: "close" (one for each), "keep" (one for each of the three parts), "pipelined" (so, and all sent in one go).
- ``age``: seconds after ``poison``; ``attempts``: how often ``fail`` is asked until it fails.
- ``twin``: how its twin reaches the server of rates, "tcp" or "unix"; ``best``: the best word that can be true of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from relive.kernel.sockdiag import listening_ports
from relive.recording.http1 import AnswerFramer, AnswerHead, MessageEnd

__all__ = ["CORPUS", "Around", "Declared", "NotRunning", "around", "ask", "corpus", "plain"]

CORPUS = Path(__file__).parent / "corpus"
_LIMIT = 60.0  # [s] for a service to listen
_BUILD_LIMIT = 300.0  # [s]
_GIVEN_UP = 30.0  # [s] for an answer

Path_ = str | list[str]


class NotRunning(Exception):
    """A service could not be built or started, for the reason given."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One service, as declared; see the top of this file."""

    name: str
    what: str
    language: str
    command: list[str]
    kind: str
    healthy: list[Path_]
    poison: list[Path_]
    fail: list[Path_]
    build: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    needs: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    connection: str = "close"
    age: float = 0.0
    attempts: int = 1
    twin: str = "tcp"
    best: str = "reproduced"

    @property
    def missing(self) -> list[str]:
        """What it needs and this machine has not."""
        return [name for name in self.needs if shutil.which(name) is None]


def corpus() -> dict[str, Declared]:
    """All services, by name."""
    found = {}
    for place in sorted(CORPUS.glob("*/service.toml")):
        name = place.parent.name
        found[name] = Declared(name=name, **tomllib.loads(place.read_text()))
    return found


class Around:
    """What lies around the services: a directory for what is built, the server of rates, and a feed.

    Attributes:
        says: what the server of rates answers; "2" is a rate.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.says = "2"
        self.feed = ThreadingHTTPServer(("127.0.0.1", 0), _Feed)
        self._path = directory / "rates.sock"
        self._listening = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self._listening[1].bind(str(self._path))
        self._listening[1].listen(16)
        self._threads = [threading.Thread(target=self._serve, args=(one,)) for one in self._listening]
        self._threads.append(threading.Thread(target=self.feed.serve_forever))
        self._built: set[str] = set()
        self._counter = 0
        for thread in self._threads:
            thread.start()

    def _serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client, contextlib.suppress(OSError):
                    client.sendall(self.says.encode())

    def rates(self, how: str) -> str:
        """How a service reaches the server of rates: "tcp", "unix", or "0" for a service that asks nobody."""
        ways = {"tcp": str(self._listening[0].getsockname()[1]), "unix": str(self._path)}
        return ways.get(how, "0")

    def words(self, declared: Declared, port: int, rates: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a new life of a service, built if it must be."""
        self._counter += 1
        data, built = self.directory / f"data-{self._counter}", self.directory / declared.name
        data.mkdir()
        given = {"python": sys.executable, "here": CORPUS / declared.name, "corpus": CORPUS, "built": built}
        given |= {"port": port, "rates": self.rates(rates), "data": data, "feed": self.feed.server_port}
        if declared.build and declared.name not in self._built:
            _build([word.format(**given) for word in declared.build])
            self._built.add(declared.name)
        environment = {name: text.format(**given) for name, text in declared.environment.items()}
        paths = [str(CORPUS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
        return [word.format(**given) for word in declared.command], environment

    def close(self) -> None:
        """End the servers."""
        for one in self._listening:
            one.shutdown(socket.SHUT_RDWR)
        self.feed.shutdown()
        for thread in self._threads:
            thread.join()
        for one in self._listening:
            one.close()
        self.feed.server_close()


def _build(words: list[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_BUILD_LIMIT)
    except subprocess.TimeoutExpired:
        raise NotRunning(f"{words[0]} did not build it within {_BUILD_LIMIT:g} s") from None
    if done.returncode != 0:
        raise NotRunning(f"{words[0]} did not build it: {done.stderr.strip() or done.stdout.strip()}")


class _Feed(BaseHTTPRequestHandler):
    """A feed, one part of which is a page."""

    def do_GET(self) -> None:
        body = b"<html>sorry</html>" if self.path == "/broken" else b'{"price": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@contextlib.contextmanager
def around(directory: Path) -> Iterator[Around]:
    """The servers, for the time of the block."""
    one = Around(directory)
    try:
        yield one
    finally:
        one.close()


@contextlib.contextmanager
def plain(place: Around, declared: Declared, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A new life of a service without Relive, that asks nobody."""
    words, environment = place.words(declared, port, "0")
    # It ends with this process, however that ends.
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + _LIMIT
        while port not in listening_ports():
            if process.poll() is not None or time.monotonic() > until:
                raise NotRunning(f"without Relive it does not listen within {_LIMIT:g} s")
            time.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(port: int, paths: list[Path_], connection: str = "close", limit: float = _GIVEN_UP) -> list[int]:
    """Statuses of the answers, in order; 0 where none came."""
    if connection == "close":
        return [
            status
            for one in paths
            for status in _at_once(port, [one] if isinstance(one, str) else one, limit)
        ]
    flat = [path for path in paths if isinstance(path, str)]
    with _connected(port, limit) as sock:
        if connection == "pipelined":
            return _exchange(sock, flat)
        return [status for path in flat for status in _exchange(sock, [path])]


def _at_once(port: int, paths: list[str], limit: float) -> list[int]:
    found = [0] * len(paths)

    def one(index: int) -> None:
        with contextlib.suppress(OSError), _connected(port, limit) as sock:
            found[index] = _exchange(sock, [paths[index]])[0]

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(paths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _connected(port: int, limit: float) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), limit)


def _exchange(sock: socket.socket, paths: list[str]) -> list[int]:
    """Send requests in one go, read their answers; 0 for each that did not come."""
    framer, statuses, ended = AnswerFramer(), [], 0
    for _ in paths:
        framer.expect(b"GET")
    try:
        sock.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: corpus\r\n\r\n".encode() for path in paths))
        while ended < len(paths):
            data = sock.recv(1 << 16)
            for piece in framer.feed(data) if data else framer.eof():
                if isinstance(piece, AnswerHead):
                    statuses.append(piece.status)
                ended += isinstance(piece, MessageEnd)
            if not data:
                break
    except OSError:
        pass
    return [*statuses[:ended], *[0] * (len(paths) - ended)]
