"""Bursts and slow clients: a service with a short queue, bare and behind the proxy, without and with commits.

    python benchmarks/burst.py [--rounds 5] [--clients 30] [--every never --every 500ms] [--json]

The service is Python's ThreadingHTTPServer, whose queue holds five connections. In a burst all clients connect at the same
moment, send one request each, and wait for 30 s at most. A slow client sends its request a byte at a time, 5 ms apart, and reads
its answer, 64 KiB, the same way in eighths; so many clients do it at a time as make a burst.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from relive.config import load_settings

SERVICE = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"x" * (65536 if self.path == "/large" else 2)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
PATIENCE = 30.0  # [s]


def ask(port: int, start: threading.Barrier, said: list[tuple[int, float]]) -> None:
    """One client of a burst; notes the status, 0 for none, and the seconds."""
    start.wait()
    begun, status = time.perf_counter(), 0
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as sock,
    ):
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        status = int(sock.makefile("rb").read().split(b" ", 2)[1])
    said.append((status, time.perf_counter() - begun))


def ask_slowly(port: int, start: threading.Barrier, said: list[tuple[int, float]]) -> None:
    """One slow client."""
    start.wait()
    begun, status, got = time.perf_counter(), 0, b""
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        socket.create_connection(("127.0.0.1", port), PATIENCE) as sock,
    ):
        for byte in b"GET /large HTTP/1.0\r\n\r\n":
            sock.sendall(bytes([byte]))
            time.sleep(0.005)
        while part := sock.recv(8192):
            got += part
            time.sleep(0.005)
        whole = len(got.partition(b"\r\n\r\n")[2]) == 65536
        status = int(got.split(b" ", 2)[1]) if whole else 0
    said.append((status, time.perf_counter() - begun))


def burst(client: Callable[..., None], port: int, clients: int, rounds: int) -> dict[str, object]:
    """Several bursts, one after the other."""
    said: list[tuple[int, float]] = []
    for _ in range(rounds):
        start = threading.Barrier(clients)
        threads = [threading.Thread(target=client, args=(port, start, said)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = sorted(one for _, one in said)
    return {
        "asked": len(said),
        "answered": sum(status == 200 for status, _ in said),
        "failed": sum(status >= 500 for status, _ in said),
        "p50_ms": round(seconds[len(seconds) // 2] * 1000, 1),
        "max_ms": round(seconds[-1] * 1000, 1),
    }


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until a request is answered there."""
    status = 0
    while status != 200:
        said: list[tuple[int, float]] = []
        ask(port, threading.Barrier(1), said)
        status = said[0][0]


def wait_until_closed(home: Path) -> None:
    """Wait until the agents of a home have written down how their services ended."""
    while not all((state.parent / "closed").exists() for state in home.glob("capsules/*/*/state.json")):
        time.sleep(0.05)


@contextlib.contextmanager
def bare() -> Iterator[tuple[int, Callable[[], int]]]:
    """The service alone: its port, and that it has no incidents."""
    port = free_port()
    service = subprocess.Popen([sys.executable, "-c", SERVICE, str(port)])
    try:
        wait_for(port)
        yield port, lambda: 0
    finally:
        service.kill()
        service.wait()


@contextlib.contextmanager
def proxied(every: str) -> Iterator[tuple[int, Callable[[], int]]]:
    """The service under Relive: the proxy's port, and how many incidents there are."""
    port, inner = free_port(), free_port()

    def relive(*words: str) -> str:
        done = subprocess.run([RELIVE, *words], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        environment = dict(os.environ, RELIVE_HOME=home, RELIVE_TOOLS=str(load_settings().tools_path))
        options = ["--detach", "--name", "burst", "--every", every, "--listen", f"127.0.0.1:{port}"]
        options += ["--upstream", f"127.0.0.1:{inner}"]
        relive("run", *options, "--", sys.executable, "-c", SERVICE, str(inner))
        try:
            wait_for(port)
            yield port, lambda: len(json.loads(relive("incidents", "--json")))
        finally:
            relive("stop", "burst")
            wait_until_closed(Path(home))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Bursts and slow clients, bare and behind the proxy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--every", action="append", help="as of `relive run`; default: never and 500ms")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ways = {"bare": bare} | {
        f"--every {every}": lambda every=every: proxied(every)
        for every in options.every or ["never", "500ms"]
    }
    rows = []
    for way, start in ways.items():
        for name, client in (("burst", ask), ("slow", ask_slowly)):
            with start() as (port, incidents):
                row = burst(client, port, options.clients, options.rounds)
                rows.append({"way": way, "clients": name, **row, "incidents": incidents()})
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print(
        f"{'service':16}{'clients':8}{'asked':>7}{'200':>6}{'5xx':>5}{'p50 ms':>9}{'max ms':>9}{'incidents':>11}"
    )
    for row in rows:
        print(
            f"{row['way']:16}{row['clients']:8}{row['asked']:>7}{row['answered']:>6}{row['failed']:>5}",
            end="",
        )
        print(f"{row['p50_ms']:>9}{row['max_ms']:>9}{row['incidents']:>11}")


if __name__ == "__main__":
    main()
