"""What all of Relive costs a real service, and what each part: FastAPI, Flask, Node.js, PostgreSQL, in turns with the bare one.

A fifth, *asking*, is Node.js that asks another HTTP service for each of its answers: for it alone what goes out costs something.

    python benchmarks/whole.py [--service NAME]... [--side NAME]... [--answer small|large]... [--connections 1 4 32]
                               [--rounds 5] [--seconds 1] [--every 5] [--json]
    python benchmarks/whole.py --table docs/costs.md    # the table there, in some ten minutes: see _cost_table

Sides, each a service of its own that is asked while the others have nothing to do:

- ``bare``: without Relive.
- ``commits``: in a capsule that records nothing, a commit each ``--every`` seconds.
- ``requests``: its requests recorded, beside their way; ``proxy``: by a proxy in it.
- ``egress``: what it asks of others recorded, beside its way; ``through``: by a recorder in it (``--record-egress``).
- ``inside``: the recorder in its Python processes.
- ``recorded``: requests, egress and inside at once.
- ``all``: the same and commits.

FastAPI (uvicorn, one process) and Flask (gunicorn, two processes of two threads) read the clock, draw a random number and query
SQLite for each answer, Node.js answers from memory, PostgreSQL executes one statement. Answers are of 200 bytes and of 1 MiB.
Clients send the next request when the last is answered (``_asking``), pgbench alike. A side with commits is asked for ``--every``
seconds in each round, the others for ``--seconds``; the commit is asked for in the middle, as the agent's own clock does it. Rounds
of all sides alternate; ratios are of the same round, and their medians are printed.

``added us`` is the difference at p50. ``cpu us`` is the processor time of Relive's processes for one request, commits included.
``request KB`` is by how much the recordings grow with a request, ``commit KB`` the store with a commit. ``MB`` is the memory of
Relive's processes (PSS).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _asking import Asked, HttpClient, SqlClient
from _cost_table import CONNECTIONS, caption, cost_table, page_with_table
from _lab import Lab, add_options, free_port, lab, load_average, median, print_json, print_table, quartiles
from following import new_cluster, relive, wait_until
from memory import beside, figures_of
from proxy import NODE_APP

from relive.agent.control.client import ask_agent
from relive.kernel.sockdiag import listening_ports
from relive.model.capsule import CaptureWay

_PYTHON = """
import os, random, sqlite3, threading, time
SMALL, LARGE = "x" * 200, "x" * 1048576
local = threading.local()
def text(size):
    if not hasattr(local, "database"):
        local.database = sqlite3.connect(":memory:")
        local.database.execute("CREATE TABLE answers (size TEXT PRIMARY KEY, body TEXT)")
        local.database.executemany("INSERT INTO answers VALUES (?, ?)", [("small", SMALL), ("large", LARGE)])
    time.time(), random.random()
    return local.database.execute("SELECT body FROM answers WHERE size = ?", (size,)).fetchone()[0]
"""
_FASTAPI = """
from fastapi import FastAPI, Response
app = FastAPI()
@app.get("/{size}")
async def answer(size: str):
    return Response(text(size), media_type="text/plain")
"""
_FLASK = """
from flask import Flask, Response
app = Flask(__name__)
@app.route("/<size>")
def answer(size):
    return Response(text(size), mimetype="text/plain")
"""
_ASKING = """
const http = require("http"), agent = new http.Agent({keepAlive: true, timeout: 2000}), other = +process.argv[3];
http.createServer((request, answer) => {
    http.get({port: other, path: request.url, agent}, (come) => {
        answer.writeHead(200, {"content-length": come.headers["content-length"], "content-type": "text/plain"});
        come.pipe(answer);
    });
}).listen(+process.argv[2], "127.0.0.1");
"""
_STATEMENTS = {"small": "SELECT repeat('x', 200)", "large": "SELECT repeat('x', 1048576)"}
_ANSWERS = tuple(_STATEMENTS)
_NAME = "whole"


@dataclass(frozen=True, slots=True)
class Side:
    """What is turned on. ``None`` for ``options``: without Relive; for ``capture``: requests are not recorded."""

    options: tuple[str, ...] | None
    capture: CaptureWay | None = None
    commits: bool = False


_PLAIN, _CALLS = ("--no-recorder", "--no-record-egress"), ("--egress", "beside")
_EVERYTHING = ("--recorder", *_CALLS)
_SIDES = {
    "bare": Side(None),
    "commits": Side(_PLAIN, commits=True),
    "requests": Side(_PLAIN, CaptureWay.BESIDE),
    "proxy": Side(_PLAIN, CaptureWay.PROXY),
    "egress": Side(("--no-recorder", *_CALLS)),
    "through": Side(("--no-recorder", "--record-egress")),
    "inside": Side(("--recorder", "--no-record-egress")),
    "recorded": Side(_EVERYTHING, CaptureWay.BESIDE),
    "all": Side(_EVERYTHING, CaptureWay.BESIDE, commits=True),
}


@dataclass(frozen=True, slots=True)
class Service:
    """One of them: how it is started at a port, and as which user; and how it is asked for an answer there."""

    command: Callable[[int], list[str]]
    ask: Callable[[int, str, int, float], Asked]
    user: str | None = None
    is_python: bool = False
    asks_others: bool = False


@contextlib.contextmanager
def services(place: Lab, wanted: list[str]) -> Iterator[dict[str, Service]]:
    """Those that are wanted."""
    directory = place.fresh("services")
    for name, source in (("of_fastapi", _FASTAPI), ("of_flask", _FLASK)):
        (directory / f"{name}.py").write_text(_PYTHON + source)
    (directory / "app.js").write_text(NODE_APP)
    (directory / "asking.js").write_text(_ASKING)
    other = free_port()
    client = HttpClient(directory)

    def ask(port: int, answer: str, connections: int, seconds: float) -> Asked:
        return client.ask(port, "/" + answer, connections, seconds)

    def fastapi(port: int) -> list[str]:
        words = [
            "--app-dir",
            str(directory),
            "--port",
            str(port),
            "--log-level",
            "warning",
            "--no-access-log",
        ]
        return [sys.executable, "-m", "uvicorn", *words, "of_fastapi:app"]

    def flask(port: int) -> list[str]:
        words = ["--chdir", str(directory), "-b", f"127.0.0.1:{port}", "-w", "2", "--threads", "2"]
        return [sys.executable, "-m", "gunicorn", *words, "--keep-alive", "60", "of_flask:app"]

    def node(port: int) -> list[str]:
        return ["node", str(directory / "app.js"), str(port)]

    def asking(port: int) -> list[str]:
        return ["node", str(directory / "asking.js"), str(port), str(other)]

    found = {
        "fastapi": Service(fastapi, ask, is_python=True),
        "flask": Service(flask, ask, is_python=True),
        "node": Service(node, ask),
        "asking": Service(asking, ask, asks_others=True),
    }
    with contextlib.ExitStack() as stack:
        if "asking" in wanted:
            stack.enter_context(_without_relive(found["node"], other))
        if "postgresql" in wanted:
            found["postgresql"] = stack.enter_context(_postgresql(directory))
        yield {name: found[name] for name in wanted}


@contextlib.contextmanager
def _postgresql(directory: Path) -> Iterator[Service]:
    server = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
    if server is None:
        raise SystemExit("error: PostgreSQL is not installed (`make setup` does)")
    client = SqlClient(directory, server.parent)
    clusters: list[Path] = []

    def command(port: int) -> list[str]:
        cluster = new_cluster(server.parent)
        clusters.append(cluster)
        given = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": cluster}
        given |= {"shared_buffers": "64MB", "huge_pages": "off"}
        words = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        return [str(server), "-D", str(cluster / "data"), *words]

    def ask(port: int, answer: str, connections: int, seconds: float) -> Asked:
        return client.ask(port, _STATEMENTS[answer], connections, seconds)

    try:
        yield Service(command, ask, user="postgres")
    finally:
        for cluster in clusters:
            shutil.rmtree(cluster, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers at a port; ``life`` is None without Relive."""

    port: int
    life: Path | None = None

    def cpu_seconds(self) -> float:
        """Processor time of Relive's processes beside it, and of those they have waited for."""
        ticks = 0
        for pid in beside(self.life) if self.life is not None else ():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                ticks += sum(int(word) for word in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def catch_up(self) -> None:
        """Wait until what records beside the way, at a lower priority, has recorded all; a proxy says so at once."""
        for name in ("proxy.sock", "egress.sock"):
            if self.life is not None and (self.life / name).exists():
                self._catch_up(self.life, name)

    @staticmethod
    def _catch_up(life: Path, name: str) -> None:
        directory = os.open(life, os.O_PATH)  # its name may be too long for a socket's
        with socket.socket(socket.AF_UNIX) as line, line.makefile("rwb") as lines:
            line.settimeout(60)
            line.connect(f"/proc/self/fd/{directory}/{name}")
            os.close(directory)
            lines.write(b'{"op":"catch-up","id":"all"}\n')
            lines.flush()
            for said in lines:
                if json.loads(said).get("id") == "all":
                    return

    def megabytes(self) -> float:
        """Memory of Relive's processes beside it (PSS)."""
        found = 0.0
        for pid in beside(self.life) if self.life is not None else ():
            with contextlib.suppress(OSError):
                found += figures_of(pid)["Pss"]
        return found


@contextlib.contextmanager
def running(place: Lab, name: str, service: Service, side: Side) -> Iterator[Running]:
    """Start it, and end it."""
    port = inner = free_port()
    if side.options is None:
        with _without_relive(service, port):
            yield Running(port)
        return
    words = ["--every", "never", *side.options, *(["--user", service.user] if service.user else [])]
    if side.capture is CaptureWay.PROXY:
        port = free_port()
        words += ["--upstream", str(inner)]
    if side.capture is not None:
        words += ["--listen", f"127.0.0.1:{port}"]
    relive(place, "run", "--detach", "--name", name, *words, "--", *service.command(inner))
    try:
        wait_until(lambda: _answers(service, port), f"{name} answers")
        yield Running(port, (place.settings.capsules / name / "current").resolve())
    finally:
        with contextlib.suppress(SystemExit):
            relive(place, "stop", name)


@contextlib.contextmanager
def _without_relive(service: Service, port: int) -> Iterator[None]:
    as_user = ["setpriv", f"--reuid={service.user}", f"--regid={service.user}", "--clear-groups"]
    words = [*(as_user if service.user else []), *service.command(port)]
    # A session of its own, as a capsule's: the kernel shares out processors by sessions (sched_autogroup).
    process = subprocess.Popen(
        words, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: port in listening_ports(), f"{words[0]} listens")
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(service: Service, port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except OSError:
        return False
    service.ask(port, "small", 1, 0.0)  # behind the proxy it may not listen yet: then this waits
    return True


@dataclass(slots=True)
class Commits:
    """Asks an agent for a commit each so many seconds, the first after half of them, until it is told to end."""

    running: Running
    every: float
    count: int = 0
    trouble: BaseException | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """For the time of the block; those that were asked for are durable at its end."""
        assert self.running.life is not None
        agent, ends = self.running.life / "agent.sock", threading.Event()

        def ask() -> None:
            pause = self.every / 2
            try:
                while not ends.wait(pause):
                    begun = time.monotonic()
                    ask_agent(agent, {"op": "commit", "trigger": "timer"}, limit=60)
                    self.count += 1
                    pause = max(0.0, self.every - (time.monotonic() - begun))
            except BaseException as error:
                self.trouble = error

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            ends.set()
            asking.join()
        if self.trouble is not None:
            raise SystemExit(f"error: a commit was not taken: {self.trouble}")


def _bytes_in(directory: Path) -> int:
    """But for packets that wait for their recorder, which are removed when it has read them."""
    found = 0
    for where, below, names in os.walk(directory):
        below[:] = [name for name in below if name != "packets"]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += (Path(where) / name).stat().st_size
    return found


def _one(
    place: Lab,
    service: Service,
    there: Running,
    side: Side,
    asked: tuple[str, int],
    options: argparse.Namespace,
) -> dict[str, float]:
    """One round of one case on one side."""
    answer, connections = asked
    commits = Commits(there, options.every)
    home = place.settings
    cpu, recorded, stored = there.cpu_seconds(), _bytes_in(home.capsules), _bytes_in(home.store)
    with commits.taken() if side.commits else contextlib.nullcontext():
        seen = service.ask(
            there.port, answer, connections, options.every if side.commits else options.seconds
        )
    there.catch_up()
    p50, p99, longest = seen.percentiles(0.5, 0.99, 1.0)
    recorded, stored = _bytes_in(home.capsules) - recorded, _bytes_in(home.store) - stored
    return {
        "per_second": seen.per_second,
        "p50": p50,
        "p99": p99,
        "longest": longest,
        "cpu": (there.cpu_seconds() - cpu) / len(seen.times) * 1e6,
        "request": recorded / len(seen.times) / 1e3,
        "commit": stored / commits.count / 1e3 if commits.count else float("nan"),
        "megabytes": there.megabytes(),
    }


def _fits(kind: str, name: str, service: Service, options: argparse.Namespace) -> bool:
    """A side that says something of a service; in the table the proxy, which is not the default, stands for Node.js alone."""
    if kind == "bare":
        return True
    if service.asks_others:
        return kind in ("egress", "through")
    if options.table is not None and (kind in ("egress", "through") or (kind == "proxy" and name != "node")):
        return False
    return kind != "inside" or service.is_python


def _is_left_out(kind: str, answer: str, options: argparse.Namespace) -> bool:
    """For the table commits alone are measured with small answers: the larger ones have them with all the rest."""
    return options.table is not None and kind == "commits" and answer == "large"


def measure(place: Lab, name: str, service: Service, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one service."""
    sides = {side: _SIDES[side] for side in ("bare", *options.side) if _fits(side, name, service, options)}
    cases = [(answer, connections) for answer in options.answer for connections in options.connections]
    found: dict[tuple[str, int], dict[str, list[dict[str, float]]]] = {
        case: {side: [] for side in sides if not _is_left_out(side, case[0], options)} for case in cases
    }
    with contextlib.ExitStack() as stack:
        started: dict[
            tuple[object, ...], Running
        ] = {}  # sides that differ by their commits alone have the same
        for number, side in enumerate(sides.values()):
            if (side.options, side.capture) not in started:
                made = running(place, f"{_NAME}-{name}-{number}", service, side)
                started[side.options, side.capture] = stack.enter_context(made)
        for side in sides.values():
            there = started[side.options, side.capture]
            if side.commits:  # the first holds all memory
                with Commits(there, 0.2).taken():
                    service.ask(there.port, "small", 1, 0.3)
            service.ask(there.port, "large", 1, 0.2)
        for _ in range(options.rounds):
            for case in cases:
                for kind in found[case]:
                    side = sides[kind]
                    there = started[side.options, side.capture]
                    found[case][kind].append(_one(place, service, there, side, case, options))
    return [
        _row(name, case, kind, rounds, of_case["bare"])
        for case, of_case in found.items()
        for kind, rounds in of_case.items()
    ]


def _row(
    name: str, case: tuple[str, int], kind: str, rounds: list[dict[str, float]], bare: list[dict[str, float]]
) -> dict[str, Any]:
    def ratios(key: str) -> list[float]:
        return [one[key] / other[key] for one, other in zip(rounds, bare, strict=True)]

    def middle(key: str) -> float:
        return median(one[key] for one in rounds)

    return {
        "service": name,
        "answer": case[0],
        "clients": case[1],
        "side": kind,
        "a second": middle("per_second"),
        "ratio": median(ratios("per_second")),
        "p50 us": middle("p50"),
        "added us": median(one["p50"] - other["p50"] for one, other in zip(rounds, bare, strict=True)),
        "p99 us": middle("p99"),
        "p99 times": median(ratios("p99")),
        "quartiles": quartiles(ratios("p99")),
        "longest ms": middle("longest") / 1e3,
        "cpu us": middle("cpu"),
        "request KB": middle("request"),
        "commit KB": middle("commit"),
        "MB": middle("megabytes"),
    }


def for_table(options: argparse.Namespace) -> None:
    """What the table is made of, in some ten minutes."""
    page_with_table("", options.table.read_text())  # refused before it is measured
    options.side = ["commits", "requests", "proxy", "egress", "through", "inside", "all"]
    options.connections, options.answer = [*CONNECTIONS], [*_ANSWERS]
    options.rounds, options.seconds = 2, 0.7


def main() -> None:
    """Measure and print."""
    names = ["fastapi", "flask", "node", "postgresql", "asking"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 5)
    sides = [side for side in _SIDES if side != "bare"]
    parser.add_argument("--service", action="append", choices=names, help="only this one (may be repeated)")
    parser.add_argument("--side", action="append", choices=sides, help="only this one, beside the bare one")
    parser.add_argument("--answer", action="append", choices=_ANSWERS, help="only these")
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 4, 32])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round without commits (default 1)")
    parser.add_argument(
        "--every",
        type=float,
        default=5.0,
        help="seconds between commits, and of a round with them (default 5)",
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="renew the table of costs in that page")
    options = parser.parse_args()
    if options.table is not None:
        for_table(options)
    options.side, options.answer = options.side or sides, options.answer or list(_ANSWERS)
    title = f"medians of {options.rounds} rounds, a commit each {options.every:g} s"
    rows: list[dict[str, Any]] = []
    begun, load = time.monotonic(), load_average()
    with lab(options) as place, services(place, options.service or names) as wanted:
        for name, service in wanted.items():
            found = measure(place, name, service, options)
            rows += found
            if not options.json:  # of a long run what is there so far
                print_table(f"{title} (load {load_average()})", found)
                sys.stdout.flush()
    if options.table is not None:
        load = f"{load} at its begin, {load_average()} at its end"
        told = caption(rows, load, time.monotonic() - begun)
        options.table.write_text(page_with_table(f"{cost_table(rows)}\n{told}", options.table.read_text()))
    if options.json:
        print_json({"rounds": options.rounds, "every": options.every, "load": load_average(), "rows": rows})


if __name__ == "__main__":
    main()
