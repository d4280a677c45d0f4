"""What the recording proxy costs: a bare service against the same service behind it, in turns, in one run.

    python benchmarks/proxy.py [--service node|nginx|flask|uvicorn|raw] [--seconds 0.5] [--rounds 7] [--json]

Four sides: the service; the service behind the proxy as Relive starts it (*relay*: plain HTTP/1 is carried by threads in C);
behind a proxy whose Python carries all (*python*); and the service itself while its packets are recorded (*beside*), which is begun
and ended with each round, since a packet that is taken costs all who send any. Its *cpu us* has what it does after the round, too.
uvicorn has its fastest parts (uvloop, httptools) where they are installed.
``raw`` is a service of forty lines, beside which every microsecond shows. The client is a loop over raw sockets. Rounds of the
sides alternate, and each number is the median of its rounds. *cpu us* is the processor time that the proxy took for a request,
which says something also where other work keeps the machine busy.
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
from typing import NamedTuple

from relive.config import load_settings
from relive.proxies.ingress.options import CAPTURE, RELAY

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
FLASK_APP = """
import sys
from flask import Flask, Response
from werkzeug.serving import WSGIRequestHandler, make_server
app = Flask(__name__)
BODIES = {"small": b"x" * 200, "large": b"x" * 1048576}
@app.route("/<name>")
def body(name):
    return Response(BODIES[name], mimetype="text/plain")
class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_request(self, *args): pass
make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=Quiet).serve_forever()
"""
NODE_APP = """
const bodies = {"/small": Buffer.alloc(200, "x"), "/large": Buffer.alloc(1048576, "x")};
require("http").createServer((request, answer) => {
    const body = bodies[request.url];
    answer.writeHead(200, {"content-length": body.length, "content-type": "text/plain"});
    answer.end(body);
}).listen(+process.argv[2], "127.0.0.1");
"""
NGINX_CONFIGURATION = """
daemon off; worker_processes 1; pid %(directory)s/nginx.pid; error_log /dev/null;
events { worker_connections 512; }
http {
    access_log off; keepalive_requests 100000000; client_body_temp_path %(directory)s/t1; proxy_temp_path %(directory)s/t2;
    fastcgi_temp_path %(directory)s/t3; uwsgi_temp_path %(directory)s/t4; scgi_temp_path %(directory)s/t5;
    server { listen 127.0.0.1:%(port)d; root %(directory)s/pages; }
}
"""
SIDES = ("bare", "relay", "python", "beside")
SERVICES = ("node", "nginx", "flask", "uvicorn", "raw")
KEPT_BYTES = 1 << 30  # as Relive starts it
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


def service_command(kind: str, directory: Path, port: int) -> list[str]:
    """Write what the service needs, and say how it is started."""
    if kind == "nginx":
        pages = directory / "pages"
        pages.mkdir()
        for name, size in (("small", 200), ("large", 1048576)):
            (pages / name).write_bytes(b"x" * size)
        directory.chmod(0o755)  # its worker is another user
        configuration = directory / "nginx.conf"
        configuration.write_text(NGINX_CONFIGURATION % {"directory": directory, "port": port})
        return ["nginx", "-c", str(configuration)]
    if kind == "node":
        (directory / "app.js").write_text(NODE_APP)
        return ["node", str(directory / "app.js"), str(port)]
    app = directory / "app.py"
    app.write_text({"uvicorn": UVICORN_APP, "flask": FLASK_APP, "raw": RAW_APP}[kind])
    if kind != "uvicorn":
        return [sys.executable, str(app), str(port)]
    options = ["--port", str(port), "--no-access-log", "--log-level", "warning", "app:app"]
    return [sys.executable, "-m", "uvicorn", "--app-dir", str(directory), *options]


def start_proxy(
    directory: Path, name: str, upstream: int, *options: str
) -> tuple[subprocess.Popen[bytes], int]:
    """A proxy with a recording of its own, and the port at which it listens."""
    ready, ready_in = os.pipe()
    proxy = subprocess.Popen(
        [
            *(sys.executable, "-m", "relive.proxies.ingress.proxy", "--listen", "127.0.0.1:0"),
            *("--upstream", f"127.0.0.1:{upstream}", "--recording", str(directory / name)),
            *("--control", str(directory / f"{name}.control"), "--ready-fd", str(ready_in)),
            *("--log", str(directory), "--hang-after", "5", "--keep-bytes", str(KEPT_BYTES), *options),
        ],
        pass_fds=[ready_in],
    )
    os.close(ready_in)
    with os.fdopen(ready) as file:
        return proxy, json.loads(file.readline())["listen"][1]


class Side(NamedTuple):
    """Where clients ask, and the proxy that stands there, if any; or where one records beside the way, in which directory."""

    port: int
    proxy: int | None
    packets: Path | None = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[int]]:
        """What records is there meanwhile; yields its processes."""
        if self.packets is None:
            yield [self.proxy] if self.proxy is not None else []
            return
        control = self.packets.with_suffix(".control")
        address = f"127.0.0.1:{self.port}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "relive.proxies.ingress.capture", "--listen", address),
                *("--upstream", address, "--recording", str(self.packets), "--control", str(control)),
                *("--log", str(self.packets.parent), "--hang-after", "5", "--keep-bytes", str(KEPT_BYTES)),
                *("--capture", str(load_settings().tools_path / CAPTURE)),
                *("--relay", str(load_settings().tools_path / RELAY)),
            ]
        )
        try:
            with reach(control) as line:
                answers = line.makefile("r")
                yield [process.pid, status(line, answers)["capture"]]
                told = status(line, answers)
                if told["gaps"]:
                    sys.stderr.write(
                        f"{told['packets_lost']} packets lost at {self.port}: the recording is not whole\n"
                    )
        finally:
            process.terminate()
            process.wait()


def reach(control: Path) -> socket.socket:
    """A line to who takes commands there, as soon as it does."""
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(control))
        except OSError:
            line.close()
            time.sleep(0.01)
        else:
            return line


def status(line: socket.socket, answers: Iterator[str]) -> dict[str, int]:
    """What the recorder says of itself."""
    line.sendall(b'{"op":"status"}\n')
    told = map(json.loads, answers)
    return dict(next(one for one in told if one["op"] == "status"))


def settle(processes: list[int]) -> None:
    """Wait until processes have nothing left to do."""
    before = -1.0
    while cpu_seconds(processes) - before > 0.002:
        before = cpu_seconds(processes)
        time.sleep(0.2)


def cpu_seconds(processes: list[int]) -> float:
    """Processor time that they have had in all."""
    threads = [one for pid in processes for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextlib.contextmanager
def stack(directory: Path, kind: str) -> Iterator[dict[str, Side]]:
    """The service and the proxies before it."""
    port = free_port()
    service = subprocess.Popen(service_command(kind, directory, port))
    wait_until_listening(port)
    relay, relay_port = start_proxy(
        directory, "relay", port, "--relay", str(load_settings().tools_path / RELAY)
    )
    python, python_port = start_proxy(directory, "python", port)
    try:
        yield {
            "bare": Side(port, None),
            "relay": Side(relay_port, relay.pid),
            "python": Side(python_port, python.pid),
            "beside": Side(port, None, directory / "beside" / "recording"),
        }
    finally:
        for process in (relay, python, service):
            process.terminate()
            process.wait()


def measure(
    sides: dict[str, Side], path: str, connections: int, seconds: float, rounds: int
) -> dict[str, object]:
    """Medians over the rounds of one case; the rounds of both sides alternate."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, there in sides.items():
            with there.recorded() as processes:
                cpu, begun = cpu_seconds(processes), time.perf_counter()
                times = sorted(asyncio.run(load(there.port, path, connections, seconds)))
                elapsed = time.perf_counter() - begun
                settle(processes)
                cpu = cpu_seconds(processes) - cpu
            if turn:  # the first warms up
                p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
                found[side].append(
                    {
                        "p50_us": p50 * 1e6,
                        "p99_us": p99 * 1e6,
                        "per_second": len(times) / elapsed,
                        "cpu_us": cpu * 1e6 / len(times),
                    }
                )
    row: dict[str, object] = {"path": path, "connections": connections}
    bare: dict[str, float] | None = None
    for side, results in found.items():
        middle = {key: round(statistics.median(r[key] for r in results), 1) for key in results[0]}
        bare = bare or middle
        middle["added_p50_us"] = round(middle["p50_us"] - bare["p50_us"], 1)
        middle["p99_ratio"] = round(middle["p99_us"] / bare["p99_us"], 2)
        middle["ratio"] = round(middle["per_second"] / bare["per_second"], 2)
        row[side] = middle
    return row


def main() -> None:
    """Run all cases and print them."""
    parser = argparse.ArgumentParser(description="Measure what the recording proxy costs")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--service", choices=SERVICES, default="node")
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=SIDES, help="of these, bare always first"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    with tempfile.TemporaryDirectory() as directory, stack(Path(directory), options.service) as there:
        sides = {side: there[side] for side in SIDES if side == "bare" or side in options.sides}
        rows = [
            measure(sides, path, connections, options.seconds, options.rounds)
            for path in ("small", "large")
            for connections in (1, 4, 32)
        ]
    if options.json:
        print(json.dumps({"service": options.service, "rows": rows}))
        return
    names = ("conns", "side", "p50 us", "p99 us", "req/s", "cpu us", "p50 +us", "p99 x", "ratio")
    print("answer  " + "".join(f"{name:>9}" for name in names))
    for row in rows:
        for side in sides:
            numbers = row[side]
            assert isinstance(numbers, dict)
            columns = ("p50_us", "p99_us", "per_second", "cpu_us", "added_p50_us", "p99_ratio", "ratio")
            cells = (row["connections"], side, *(numbers[name] for name in columns))
            print(f"{row['path']:8}" + "".join(f"{cell:>9}" for cell in cells))


if __name__ == "__main__":
    main()
