"""What recording from inside costs a Python service: bare, with Relive, and with its peers, in one run.

    python benchmarks/recorder.py [--rounds 15] [--json]

Services: FastAPI under uvicorn and Flask under gunicorn (2 workers); each request does one SQLite insert, one select of five
rows, one Redis INCR and one GET. Each runs bare, in a capsule without and with the recorder (no proxy in between), with sentry-sdk
(locals on, nothing sent), and under opentelemetry-instrument (spans sent in batches to a listener that says yes). All variants
run at the same time and are asked in turn, 200 requests by one client in each round, so that all meet the same noise; then in
turn by eight clients for a second, for throughput. Ratios are per round, then their median.

"Ordinary load" is an open loop: requests begin at fixed times, a quarter as many as the bare service answers one after the other,
and the time is taken from when a request should have begun. Between two of them the service sleeps, as services mostly do, so
its caches are colder, and waking it up is part of both times. The closed loop sends the next request as soon as it has the answer:
there the service never rests, and nothing but it counts.

What a request costs is also measured without a server and a client, in a process for each way: processor time of all threads,
the least of many runs. What one event costs is measured in one process without a server: processor time of the thread, the
least of many runs, over that of the bare call; with the recorder's part in C and without.

The peers come from the package index into a virtual environment of their own, in which all variants run. A Redis server
must be installed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
    Program,
    add_options,
    free_port,
    lab,
    load_average,
    median,
    print_json,
    print_table,
    quartiles,
)

_REQUESTS = 200
_LOAD = 0.25  # ordinary load, as a part of what the bare service can do for one client
_CLIENTS = 8
_SECONDS = 1.0
_LIMIT = 60.0  # [s] for a service to come up
_PACKAGES = [
    *(
        "fastapi",
        "uvicorn",
        "flask",
        "gunicorn",
        "redis",
        "sentry-sdk",
        "opentelemetry-distro",
        "opentelemetry-exporter-otlp-proto-http",
    ),
    *(f"opentelemetry-instrumentation-{name}" for name in ("fastapi", "flask", "sqlite3", "redis")),
]
_COMMON = """
import os, sqlite3
import redis as redis_module
if os.environ.get("SENTRY"):
    import sentry_sdk
    sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", include_local_variables=True, traces_sample_rate=1.0,
                    transport=lambda event: None)
redis = redis_module.Redis(port=int(os.environ["REDIS_PORT"]))
database = sqlite3.connect(os.environ["DATABASE"], check_same_thread=False, isolation_level=None)
database.execute("PRAGMA journal_mode=wal")
database.execute("PRAGMA synchronous=off")
database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER)")

def work(customer):
    database.execute("INSERT INTO orders (customer, amount) VALUES (?, ?)", (customer, 7))
    rows = database.execute("SELECT id, amount FROM orders WHERE id <= ? LIMIT 5", (customer + 5,)).fetchall()
    count = redis.incr("count")
    redis.get("count")
    return {"rows": rows, "count": count}
"""
_FASTAPI = """
from fastapi import FastAPI
app = FastAPI()
@app.get("/orders/{customer}")
def orders(customer: int):
    return work(customer)
"""
_FLASK = """
from flask import Flask
app = Flask("orders")
@app.get("/orders/<int:customer>")
def orders(customer):
    return work(customer)
"""


_LISTENER = """
import http.server, sys
class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Taker).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the servers are that all variants use."""

    redis: int
    spans: int


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round saw of one variant: milliseconds, and requests a second."""

    p50: float
    p99: float
    ordinary_p50: float
    ordinary_p99: float
    rate: float


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which a service runs: where it is asked."""

    name: str
    port: int


def _environment(place: Lab) -> Path:
    """A virtual environment with the services and the peers; returns its Python's directory."""
    where = place.settings.home.parent / "peers"
    subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
    subprocess.run(
        [str(where / "bin/pip"), "install", "-qq", *_PACKAGES], check=True, stderr=subprocess.DEVNULL
    )
    return where / "bin"


def _command(bin_: Path, kind: str, module: str, port: int) -> list[str]:
    if kind == "fastapi":
        return [
            str(bin_ / "uvicorn"),
            "--port",
            str(port),
            "--log-level",
            "warning",
            "--no-access-log",
            module,
        ]
    return [
        str(bin_ / "gunicorn"),
        "--workers",
        "2",
        "--bind",
        f"127.0.0.1:{port}",
        "--log-level",
        "warning",
        module,
    ]


def _program(place: Lab, bin_: Path, kind: str, variant: str, ports: Ports) -> Program:
    directory = place.fresh(f"{kind}-{variant}")
    name = f"orders_{kind}_{variant}"
    (directory / f"{name}.py").write_text(_COMMON + (_FASTAPI if kind == "fastapi" else _FLASK))
    port = free_port()
    command = _command(bin_, kind, f"{name}:app", port)
    extra = {
        "REDIS_PORT": str(ports.redis),
        "DATABASE": str(directory / "orders.db"),
        "PYTHONPATH": str(directory),
    }
    if variant == "sentry":
        extra["SENTRY"] = "1"
    if variant == "opentelemetry":
        command = [str(bin_ / "opentelemetry-instrument"), *command]
        extra |= {f"OTEL_{signal}_EXPORTER": "none" for signal in ("METRICS", "LOGS")}
        extra |= {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports.spans}",
        }
    return Program(name, command, extra, port, tells=False, inside=variant == "relive")


@contextlib.contextmanager
def _redis(place: Lab) -> Iterator[int]:
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit(
            "error: no redis-server\ncause: it is not installed\nremedy: apt-get install redis-server"
        )
    port = free_port()
    options = ["--port", str(port), "--save", "", "--dir", str(place.fresh("redis"))]
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _spans() -> Iterator[int]:
    """Somebody who takes spans and throws them away."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", _LISTENER, str(port)])
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _running(place: Lab, program: Program) -> Iterator[Variant]:
    """As it is started without Relive: no capsule around it."""
    log = place.fresh("log") / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            program.command,
            stdout=out,
            stderr=out,
            env=dict(os.environ, **program.environment),
            start_new_session=True,
        )
    assert program.port is not None
    try:
        _await_answer(program.port, log)
        yield Variant(program.name, program.port)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _in_capsule(place: Lab, program: Program) -> Iterator[Variant]:
    with place.capsule(program) as service:
        assert program.port is not None
        _await_answer(program.port, service.output)
        yield Variant(program.name, program.port)


def _await_answer(port: int, log: Path) -> None:
    until = time.monotonic() + _LIMIT
    while True:
        try:
            _ask(http.client.HTTPConnection("127.0.0.1", port, timeout=5), 1)
        except (OSError, http.client.HTTPException):
            if time.monotonic() > until:
                raise SystemExit(f"error: a service did not come up: {log.read_text()[-500:]}") from None
            time.sleep(0.05)
        else:
            return


def _ask(connection: http.client.HTTPConnection, number: int) -> None:
    connection.request("GET", f"/orders/{number}")
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise SystemExit(f"error: a service answered {answer.status}")


def _latencies(port: int) -> list[float]:
    """Milliseconds of each of ``_REQUESTS`` requests, one after the other; a new connection only where the server closes it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    took = []
    for number in range(_REQUESTS):
        began = time.perf_counter()
        _ask(connection, number)
        took.append((time.perf_counter() - began) * 1e3)
    connection.close()
    return took


def _ordinary(port: int, period: float) -> list[float]:
    """Milliseconds of each of ``_REQUESTS`` requests, one every ``period`` seconds, from when it was due."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    took = []
    due = time.perf_counter() + period
    for number in range(_REQUESTS):
        time.sleep(max(0.0, due - time.perf_counter()))
        _ask(connection, number)
        took.append((time.perf_counter() - due) * 1e3)
        due += period
    connection.close()
    return took


def _throughput(port: int) -> float:
    """Requests a second with ``_CLIENTS`` clients."""
    counts = [0] * _CLIENTS
    until = time.monotonic() + _SECONDS

    def client(index: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        while time.monotonic() < until:
            _ask(connection, index)
            counts[index] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(index,)) for index in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / _SECONDS


def _measure_kind(place: Lab, bin_: Path, kind: str, ports: Ports, rounds: int) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[Lab, Program], contextlib.AbstractContextManager[Variant]]] = {
        "bare": _running,
        "capsule": _in_capsule,
        "relive": _in_capsule,
        "sentry": _running,
        "opentelemetry": _running,
    }
    seen: dict[str, list[_Round]] = {name: [] for name in ways}
    period = 0.0
    with contextlib.ExitStack() as stack:
        variants = {
            name: stack.enter_context(way(place, _program(place, bin_, kind, name, ports)))
            for name, way in ways.items()
        }
        for number in range(rounds + 1):
            order = list(variants)
            order = order[number % len(order) :] + order[: number % len(order)]  # nobody is always the first
            for name in order:
                took = sorted(_latencies(variants[name].port))
                if not number:  # the first warms up
                    period = median(took) / 1e3 / _LOAD if name == "bare" else period
                    continue
                eased = sorted(_ordinary(variants[name].port, period))
                rate = _throughput(variants[name].port)
                seen[name].append(_Round(median(took), _p99(took), median(eased), _p99(eased), rate))
    return [_row(kind, name, seen[name], seen["bare"]) for name in ways]


def _p99(times: list[float]) -> float:
    return times[int(len(times) * 0.99)]


def _row(kind: str, name: str, rounds: list[_Round], bare: list[_Round]) -> dict[str, Any]:
    pairs = list(zip(rounds, bare, strict=True))
    return {
        "service": kind,
        "with": name,
        "p50 ms": median(one.p50 for one in rounds),
        "p50 iqr": quartiles([one.p50 for one in rounds]),
        "p50/bare": median(one.p50 / other.p50 for one, other in pairs),
        "p99/bare": median(one.p99 / other.p99 for one, other in pairs),
        "ordinary p50 ms": median(one.ordinary_p50 for one in rounds),
        "ordinary p50/bare": median(one.ordinary_p50 / other.ordinary_p50 for one, other in pairs),
        "ordinary p99/bare": median(one.ordinary_p99 / other.ordinary_p99 for one, other in pairs),
        "requests/s": median(one.rate for one in rounds),
        "rate/bare": median(one.rate / other.rate for one, other in pairs),
    }


def _recorder_alone(place: Lab, *, quick: bool) -> dict[str, str]:
    """The environment of a process with the recorder and without a capsule."""
    from relive.agent.capsule.injection import with_recorder  # noqa: PLC0415

    rings = place.fresh("rings")
    found = with_recorder(dict(os.environ), place.settings)
    options = json.loads(found["RELIVE_RECORDER"]) | {"rings": str(rings), "quick": quick}
    source = Path(__file__).parent.parent / "src" / "relive_inprocess"
    return found | {"PYTHONPATH": str(source), "RELIVE_RECORDER": json.dumps(options)}


def _event_costs(bin_: Path, place: Lab, redis: int, runs: int) -> list[dict[str, Any]]:
    """Microseconds that one call takes longer because it is recorded."""
    program = Path(__file__).parent / "_event_costs.py"

    def measure(environment: dict[str, str]) -> dict[str, float]:
        done = subprocess.run(
            [str(bin_ / "python"), str(program), str(redis)],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
        )
        return dict(json.loads(done.stdout))

    ways = {"bare": dict(os.environ), "in C": {}, "in Python": {}}
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, environment in ways.items():
            seen[name].append(measure(environment or _recorder_alone(place, quick=name == "in C")))
    least = {
        name: {what: min(one[what] for one in found) for what in found[0]} for name, found in seen.items()
    }
    return [
        {
            "recorded": what,
            "bare us": bare,
            "in C us more": least["in C"][what] - bare,
            "in Python us more": least["in Python"][what] - bare,
        }
        for what, bare in least["bare"].items()
    ]


def _request_costs(bin_: Path, place: Lab, runs: int) -> list[dict[str, Any]]:
    """Microseconds of a request without a server: bare, and how many more with each."""
    program = [str(bin_ / "python"), str(Path(__file__).parent / "_request_costs.py")]
    silent = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        "bare": (program, dict(os.environ)),
        "relive": (program, _recorder_alone(place, quick=True)),
        "sentry, no traces": (program, os.environ | {"SENTRY": "0"}),
        "sentry, traces": (program, os.environ | {"SENTRY": "1"}),
        "opentelemetry": ([str(bin_ / "opentelemetry-instrument"), *program], os.environ | silent),
    }
    least: dict[str, dict[str, float]] = {}
    for _ in range(runs):
        for name, (command, environment) in ways.items():
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            found = json.loads(done.stdout)
            known = least.setdefault(name, found)
            least[name] = {what: min(cost, known[what]) for what, cost in found.items()}
    bare = least.pop("bare")
    return [
        {
            "handler": what,
            "bare us": cost,
            **{f"{name} us more": one[what] - cost for name, one in least.items()},
        }
        for what, cost in bare.items()
    ]


def _start_up(bin_: Path, place: Lab) -> dict[str, float]:
    """Milliseconds that the recorder adds to the start of a Python that does nothing."""
    bare, with_it = dict(os.environ), _recorder_alone(place, quick=True)

    def start(environment: dict[str, str]) -> float:
        began = time.perf_counter()
        subprocess.run([str(bin_ / "python"), "-c", ""], check=True, env=environment)
        return (time.perf_counter() - began) * 1e3

    pairs = [(start(bare), start(with_it)) for _ in range(21)][1:]
    return {
        "bare ms": median(one for one, _ in pairs),
        "added ms": median(other - one for one, other in pairs),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 15)
    options = parser.parse_args()
    with lab(options) as place, _redis(place) as redis, _spans() as spans:
        bin_ = _environment(place)
        start_up = _start_up(bin_, place)
        requests = _request_costs(bin_, place, max(3, options.rounds // 2))
        costs = _event_costs(bin_, place, redis, max(3, options.rounds // 2))
        rows = [
            row
            for kind in ("fastapi", "flask")
            for row in _measure_kind(place, bin_, kind, Ports(redis, spans), options.rounds)
        ]
    result = {
        "rows": rows,
        "requests": requests,
        "events": costs,
        "start-up": start_up,
        "rounds": options.rounds,
        "load": load_average(),
    }
    if options.json:
        print_json(result)
        return
    print_table(
        f"latency of a request, {options.rounds} rounds of {_REQUESTS}, load average {result['load']}", rows
    )
    print_table("what a request costs without a server", requests)
    print_table("what one recorded call costs", costs)
    print_table("start of a Python process", [start_up])


if __name__ == "__main__":
    main()
