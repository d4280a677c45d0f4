"""What Relive takes in memory beside services, by process: many small ones, a large one, and one after a day's worth of events.

    python benchmarks/memory.py [--case many --case large --case day] [--services 20] [--megabytes 400] [--requests 86400] [--json]

*many*: small HTTP services behind the recording proxy, each committed every 10 s, a minute after the last was started. *large*: one
that writes 30 MB anew each half second, committed every 2 s; its agent is looked at every 20 ms, apart for while a commit is being
stored and between commits. *day*: a request a second for a day, as fast as it goes, every thousandth of which fails and becomes an
incident, with a commit every second; looked at before, at each quarter, and after a pause.

RSS is all that a process has mapped and used; PSS counts what n processes share as an nth; *own* is what it shares with nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from burst import free_port, wait_for, wait_until_closed

from relive.agent.control.client import ask_agent
from relive.config import load_settings
from relive.errors import AgentUnreachable

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
SMALL = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet: else each waits for an acknowledgement
    def do_GET(self):
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *words): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
LARGE = """
import os, sys, time
size = int(sys.argv[1]) << 20
held = bytearray(os.urandom(size))
while True:
    for at in range(0, size, 30 << 20):
        held[at:at + (30 << 20)] = os.urandom(min(30 << 20, size - at))
        time.sleep(0.5)
"""
KINDS = {
    b"relive.agent": "agent",
    b"relive.proxies.ingress.proxy": "recording proxy",
    b"relive.proxies.egress.recorder": "recorder at the border",
    b"relive.proxies.ingress.capture": "recorder of packets",
    b"relive.proxies.egress.beside": "recorder of calls",
}
COMMON = {b"relive.signals.tracer": "tracer", b"relive.forkserver": "fork server"}
FIGURES = ("Rss", "Pss", "own")
SETTLED = 60.0


def figures_of(pid: int) -> dict[str, float]:
    """RSS, PSS and what is its own, in MB (1,000,000 bytes)."""
    found = {"own": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        megabytes = int(value.split()[0]) * 1024 / 1e6
        if name in FIGURES:
            found[name] = megabytes
        elif name in ("Private_Clean", "Private_Dirty"):
            found["own"] += megabytes
    return found


def descendants(pid: int) -> Iterator[int]:
    """A process's children and theirs."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def commands() -> Iterator[tuple[int, list[bytes]]]:
    """(pid, words) of each process."""
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdigit():
                yield int(place.name), (place / "cmdline").read_bytes().split(b"\0")


def of_all(home: Path) -> dict[int, str]:
    """Kinds of the processes that no word tells a service of, by pid: tracers of this home, and the fork server of all."""
    found = {}
    for pid, words in commands():
        kind = next((COMMON[word] for word in words if word in COMMON), None)
        if kind == "tracer" and f"RELIVE_HOME={home}".encode() not in variables(pid):
            kind = None
        found |= {pid: kind} if kind is not None else {}
    return found


def variables(pid: int) -> list[bytes]:
    """A process's environment."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def beside(life: Path) -> dict[int, str]:
    """Kinds of the processes of Relive beside a service, by pid; process 1 of the capsule is among them."""
    agent = int((life / "agent.pid").read_text().split()[0])
    state = json.loads((life / "state.json").read_text())
    found = {agent: "agent", int(state["init"]): "process 1"}
    named = str(life).encode()
    for pid, words in commands():
        if any(named in word for word in words):
            kind = next((KINDS[word] for word in words if word in KINDS), None)
            kind = "taker of packets" if words[0].endswith(b"/relive-capture") else kind
            found |= {pid: kind} if kind is not None else {}
    for pid in descendants(agent):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if not any(word in COMMON for word in words):  # a tracer that was executed
            name = next((KINDS[word] for word in words if word in KINDS), Path(os.fsdecode(words[0])).name)
            found.setdefault(pid, name.removeprefix("relive-"))
    return found


def sums(home: Path, lives: list[Path]) -> list[dict[str, object]]:
    """A row for each kind of process, and one for all."""
    found = [*of_all(home).items(), *(item for life in lives for item in beside(life).items())]
    looked = [(kind, figures_of(pid)) for pid, kind in sorted(found)]
    rows: list[dict[str, object]] = []
    for kind in dict.fromkeys(kind for kind, _ in looked):
        mine = [figures for other, figures in looked if other == kind]
        row = {name: round(statistics.median(one[name] for one in mine), 1) for name in FIGURES}
        rows.append(
            {
                "process": kind,
                "number": len(mine),
                **row,
                "sum PSS": round(sum(one["Pss"] for one in mine), 1),
            }
        )
    whole = {"process": "all", "number": len(looked), "Rss": "", "Pss": "", "own": ""}
    rows.append({**whole, "sum PSS": round(sum(figures["Pss"] for _, figures in looked), 1)})
    return rows


class Bench:
    """A RELIVE_HOME of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._environment = dict(
            os.environ, RELIVE_HOME=str(home), RELIVE_TOOLS=str(load_settings().tools_path)
        )

    def relive(self, *words: str) -> str:
        """A command, and what it says."""
        done = subprocess.run(
            [RELIVE, *words], env=self._environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def run(self, name: str, *words: str) -> Path:
        """Start a service; the directory of its life."""
        self.relive("run", "--detach", "--name", name, *words)
        return (self._home / "capsules" / name / "current").resolve()

    def small(self, name: str, *options: str) -> tuple[Path, int]:
        """Start a small HTTP service; also the port that clients use."""
        port, inner = free_port(), free_port()
        places = ["--listen", f"127.0.0.1:{port}", "--upstream", f"127.0.0.1:{inner}"]
        life = self.run(name, *places, *options, "--", sys.executable, "-c", SMALL, str(inner))
        wait_for(port)
        return life, port

    def many(self, services: int) -> list[dict[str, object]]:
        """See the module."""
        lives = [self.small(f"small-{number}", "--every", "10s")[0] for number in range(services)]
        time.sleep(SETTLED)
        return sums(self._home, lives)

    def large(self, megabytes: int, seconds: float) -> list[dict[str, object]]:
        """See the module."""
        life = self.run("large", "--every", "2s", "--", sys.executable, "-c", LARGE, str(megabytes))
        agent = int((life / "agent.pid").read_text().split()[0])
        storing: list[dict[str, float]] = []
        between: list[dict[str, float]] = []
        ends = threading.Event()
        pending = [0]

        def ask() -> None:
            while not ends.wait(0.05):
                try:
                    pending[0] = ask_agent(life / "agent.sock", {"op": "status"}, limit=60)["pending"]
                except AgentUnreachable:
                    continue

        asking = threading.Thread(target=ask)
        asking.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            (storing if pending[0] else between).append(figures_of(agent))
            time.sleep(0.02)
        ends.set()
        asking.join()
        rows: list[dict[str, object]] = []
        for when, seen in (("storing a commit", storing), ("between commits", between)):
            for what, pick in (("median", statistics.median), ("most", max)):
                row = {name: round(pick([one[name] for one in seen]), 1) for name in FIGURES} if seen else {}
                rows.append({"agent": when, "of": what, "looks": len(seen), **row})
        return rows

    def day(self, requests: int) -> list[dict[str, object]]:
        """See the module."""
        life, port = self.small("day", "--every", "1s")
        rows: list[dict[str, object]] = []

        def look(after: str) -> None:
            kinds = beside(life) | of_all(self._home)
            row: dict[str, object] = {"after": after}
            for pid, kind in kinds.items():
                if kind in (*KINDS.values(), *COMMON.values()):
                    row |= {f"{kind} {name}": round(figures_of(pid)[name], 1) for name in ("Rss", "own")}
            rows.append(row)

        time.sleep(10.0)
        look("10 s")
        for quarter in range(1, 5):
            ask_many(port, requests // 4)
            look(f"{quarter * (requests // 4)} requests")
        time.sleep(30.0)
        look("a pause of 30 s")
        return rows


def ask_many(port: int, requests: int) -> None:
    """On one connection, one after the other; every thousandth fails."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock, sock.makefile("rb") as answers:
        for number in range(requests):
            path = "fail" if number % 1000 == 500 else f"item/{number}"
            sock.sendall(f"GET /{path} HTTP/1.1\r\nHost: day\r\n\r\n".encode())
            while answers.readline() not in (b"\r\n", b""):
                pass
            answers.read(2)


@contextmanager
def bench() -> Iterator[Bench]:
    """For the time of the block; what it started is stopped."""
    with tempfile.TemporaryDirectory(dir=load_settings().home, prefix="memory-") as home:
        made = Bench(Path(home))
        try:
            yield made
        finally:
            for place in sorted((Path(home) / "capsules").glob("*/current")):
                made.relive("stop", place.parent.name)
            wait_until_closed(Path(home))


def print_rows(title: str, rows: list[dict[str, object]]) -> None:
    """A table."""
    print(f"\n{title}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    texts = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(names))]
    for line in texts:
        print(
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)),
                ]
            )
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What Relive takes in memory beside services")
    parser.add_argument("--case", action="append", choices=["many", "large", "day"], help="default: all")
    parser.add_argument("--services", type=int, default=20, help="of many (default 20)")
    parser.add_argument("--megabytes", type=int, default=400, help="of the large one (default 400)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for which the large one is looked at (default 60)"
    )
    parser.add_argument("--requests", type=int, default=86400, help="of a day (default 86400)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, list[dict[str, object]]] = {}
    load_settings().home.mkdir(parents=True, exist_ok=True)
    for case in options.case or ["many", "large", "day"]:
        with bench() as made:
            if case == "many":
                result[case] = made.many(options.services)
            elif case == "large":
                result[case] = made.large(options.megabytes, options.seconds)
            else:
                result[case] = made.day(options.requests)
        if not options.json:
            print_rows(f"{case} (MB)", result[case])
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
