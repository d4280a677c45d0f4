"""What the recording proxy costs: a bare service against the same service behind it, in pairs, in one run.

    python benchmarks/proxy.py [--seconds 0.5] [--rounds 7] [--raw] [--json]

The service is uvicorn with its fastest parts (uvloop, httptools) where they are installed; ``--raw`` takes a service of
forty lines instead, beside which every microsecond of the proxy shows. The client is a loop over raw sockets in a
process of its own; bare and proxied rounds alternate, and each number is the median of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

UVICORN_APP = """
BODIES = {"/small": b"x" * 200, "/large": b"x" * 1048576}
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = BODIES[scope["path"]]
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
RAW_APP = """
import asyncio, sys
try:
    import uvloop; run = uvloop.run
except ImportError:
    run = asyncio.run
def answer(n): return b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n" % n + b"x" * n
ANSWERS = {b"/small": answer(200), b"/large": answer(1048576)}
class P(asyncio.Protocol):
    def connection_made(self, t): self.t = t
    def data_received(self, d): self.t.write(ANSWERS[d.split(b" ", 2)[1]])
async def main():
    loop = asyncio.get_running_loop()
    s = await loop.create_server(P, "127.0.0.1", int(sys.argv[1]))
    await s.serve_forever()
run(main())
"""
HEADERS = b"Host: localhost\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nX-Request-Id: 12345\r\n"


class Client(asyncio.Protocol):
    """One keep-alive connection: sends, waits for the whole answer, notes the time, sends again."""

    def __init__(self, path: str, until: float, times: list[float]) -> None:
        self.request = b"GET /%s HTTP/1.1\r\n" % path.encode() + HEADERS + b"\r\n"
        self.until, self.times = until, times
        self.done = asyncio.get_running_loop().create_future()
        self.left = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.left < 0:
            head, _, body = data.partition(b"\r\n\r\n")
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            self.left = int(length) - len(body)
        else:
            self.left -= len(data)
        if self.left:
            return
        self.left = -1
        now = time.perf_counter()
        self.times.append(now - self.begun)
        if now < self.until:
            self.send()
        else:
            self.transport.close()
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed early"))


async def load(port: int, path: str, connections: int, seconds: float) -> list[float]:
    """Seconds that each request took."""
    times: list[float] = []
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    clients = [Client(path, until, times) for _ in range(connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    await asyncio.gather(*(client.done for client in clients))
    return times


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until_listening(port: int) -> None:
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return


@contextlib.contextmanager
def stack(directory: Path, *, raw: bool) -> Iterator[dict[str, int]]:
    """Ports of the service and of the proxy before it."""
    app, port = directory / "app.py", free_port()
    app.write_text(RAW_APP if raw else UVICORN_APP)
    uvicorn = [
        "-m",
        "uvicorn",
        "--app-dir",
        str(directory),
        "--port",
        str(port),
        "--no-access-log",
        "app:app",
    ]
    options = [str(app), str(port)] if raw else [*uvicorn, "--log-level", "warning"]
    service = subprocess.Popen([sys.executable, *options])
    wait_until_listening(port)
    ready, ready_in = os.pipe()
    proxy = subprocess.Popen(
        [
            *(sys.executable, "-m", "relive.proxies.ingress.proxy", "--listen", "127.0.0.1:0", "--upstream"),
            *(
                f"127.0.0.1:{port}",
                "--recording",
                str(directory / "rec"),
                "--control",
                str(directory / "ctl"),
            ),
            *("--ready-fd", str(ready_in), "--log", str(app), "--hang-after", "5"),
        ],
        pass_fds=[ready_in],
    )
    os.close(ready_in)
    with os.fdopen(ready) as file:
        listen = json.loads(file.readline())["listen"][1]
    try:
        yield {"bare": port, "proxied": listen}
    finally:
        for process in (proxy, service):
            process.terminate()
            process.wait()


def measure(
    ports: dict[str, int], path: str, connections: int, seconds: float, rounds: int
) -> dict[str, object]:
    """Medians over the rounds of one case; the rounds of both sides alternate."""
    found: dict[str, list[dict[str, float]]] = {"bare": [], "proxied": []}
    for turn in range(rounds + 1):
        for side, port in ports.items():
            begun = time.perf_counter()
            times = sorted(asyncio.run(load(port, path, connections, seconds)))
            elapsed = time.perf_counter() - begun
            if turn:  # the first warms up
                p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
                found[side].append(
                    {"p50_us": p50 * 1e6, "p99_us": p99 * 1e6, "per_second": len(times) / elapsed}
                )
    row: dict[str, object] = {"path": path, "connections": connections}
    for side, results in found.items():
        row[side] = {key: round(statistics.median(r[key] for r in results), 1) for key in results[0]}
    row["added_p50_us"] = round(row["proxied"]["p50_us"] - row["bare"]["p50_us"], 1)  # type: ignore[index]
    row["throughput_ratio"] = round(row["proxied"]["per_second"] / row["bare"]["per_second"], 3)  # type: ignore[index]
    return row


def main() -> None:
    """Run all cases and print them."""
    parser = argparse.ArgumentParser(description="Measure what the recording proxy costs")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--raw", action="store_true", help="a bare asyncio service instead of uvicorn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    with tempfile.TemporaryDirectory() as directory, stack(Path(directory), raw=options.raw) as ports:
        rows = [
            measure(ports, path, connections, options.seconds, options.rounds)
            for path in ("small", "large")
            for connections in (1, 32)
        ]
    if options.json:
        print(json.dumps({"service": "raw" if options.raw else "uvicorn", "rows": rows}))
        return
    print(
        f"{'answer':8}{'conns':>6}{'side':>9}{'p50 us':>10}{'p99 us':>10}{'req/s':>9}{'added p50':>11}{'ratio':>7}"
    )
    for row in rows:
        for side in ("bare", "proxied"):
            numbers = row[side]
            assert isinstance(numbers, dict)
            print(f"{row['path']:8}{row['connections']:>6}{side:>9}", end="")
            print(f"{numbers['p50_us']:>10}{numbers['p99_us']:>10}{numbers['per_second']:>9}", end="")
            print(f"{row['added_p50_us']:>11}{row['throughput_ratio']:>7}" if side == "proxied" else "")


if __name__ == "__main__":
    main()
