"""Everything of Relive beside a service killed at once, again and again, while clients ask: what do they see?

    python benchmarks/front.py [--rounds 10] [--watch] [--json]

The clients, four, each open a connection, send one request, read the answer, and do it again. ``proxy``: the recording proxy alone
is killed (SIGKILL); ``agent``: the agent alone; ``both``: these two; ``all``: and the supervisor of the agent, after which nobody
is left but who keeps the port, and the next command of Relive (`relive ps`, 3 s later) starts another agent. With ``--watch`` the
service is none of Relive's, and ``relive-front`` keeps the port, not process 1 of a capsule; ``front``: that is killed. A connect
is *refused* where nobody listens; a request is *broken* when its connection stood at the moment of the kill, which nothing of ours
can carry on. *Away* is the time from the kill until another agent has its proxy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

from burst import SERVICE, free_port, wait_for, wait_until_closed

from relive.config import load_settings

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
LIMIT = 60.0  # [s]
MARKS = (
    ("agent", b"relive.agent"),
    ("agent", b"relive.watching"),
    ("proxy", b"relive.proxies.ingress.proxy"),
)


class Clients:
    """Asking until ``stop``; counts are of what was seen since ``begin``."""

    def __init__(self, port: int, number: int) -> None:
        self._port, self._stopping = port, threading.Event()
        self.begin()
        self._threads = [threading.Thread(target=self._ask) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        self.answered = self.refused = self.broken = 0
        self.longest = 0.0

    def _ask(self) -> None:
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                sock = socket.create_connection(("127.0.0.1", self._port), LIMIT)
            except ConnectionRefusedError:
                self.refused += 1
                time.sleep(0.005)
                continue
            try:
                with sock:
                    sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    whole = sock.makefile("rb").read().endswith(b"ok")
            except OSError:
                whole = False
            if whole:
                self.answered += 1
                self.longest = max(self.longest, time.monotonic() - begun)
            else:
                self.broken += 1
            time.sleep(0.005)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def processes(directory: Path) -> dict[str, int]:
    """Host pids of what looks after a life, by what they are; of two supervisors the one that acts."""
    found = {}
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0") if place.name.isdigit() else []
        except OSError:
            continue
        for name, mark in MARKS:
            if mark in words and any(bytes(directory) in word for word in words):
                found[name] = int(place.name)
        if len(words) > 1 and words[1] == bytes(directory):
            for kind in ("supervisor", "front"):
                if words[0].endswith(f"relive-{kind}".encode()):
                    found[f"{kind} {place.name}"] = int(place.name)
    return found


def is_whole(directory: Path, without: set[int]) -> bool:
    """An agent with a proxy, none of which is among the killed, and a supervisor."""
    found = processes(directory)
    if not {"agent", "proxy"} <= found.keys() or without & {found["agent"], found["proxy"]}:
        return False
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(directory / "proxy.sock"))
    except OSError:
        return False
    finally:
        sock.close()
    return any(name.startswith("supervisor") for name in found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Kill all of Relive while clients ask")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--watch", action="store_true", help="watch a service that runs already")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        environment = dict(os.environ, RELIVE_HOME=home, RELIVE_TOOLS=str(load_settings().tools_path))

        def relive(*words: str) -> None:
            subprocess.run([RELIVE, *words], env=environment, stdout=subprocess.DEVNULL, check=True)

        port, inner = free_port(), free_port()
        given = ["--listen", f"127.0.0.1:{port}", "--upstream", f"127.0.0.1:{inner}", "--every", "2s"]
        service = SERVICE.replace('b"x" * (65536 if self.path == "/large" else 2)', 'b"ok"')
        command = [sys.executable, "-c", service, str(inner)]
        stranger = subprocess.Popen(command, stderr=subprocess.DEVNULL) if options.watch else None
        if stranger is not None:
            wait_for(inner)
            relive("watch", f"pid:{stranger.pid}", "--name", "front", *given)
            directory = next((Path(home) / "capsules/front").glob("*/watch.json")).parent
        else:
            relive("run", "--detach", "--name", "front", *given, "--", *command)
            directory = (Path(home) / "capsules/front/current").resolve()
        wait_for(port)
        clients = Clients(port, 4)
        try:
            kinds = {
                "proxy": ("proxy",),
                "agent": ("agent",),
                "both": ("agent", "proxy"),
                "all": ("agent", "proxy", "supervisor"),
            }
            for what, marks in (kinds | {"front": ("front",)} if options.watch else kinds).items():
                away = []
                while not is_whole(directory, set()):
                    time.sleep(0.05)
                clients.begin()
                for _ in range(options.rounds):
                    killed = {pid for name, pid in processes(directory).items() if name.startswith(marks)}
                    begun = time.monotonic()
                    for pid in killed:
                        os.kill(pid, signal.SIGKILL)
                    if what == "all":
                        time.sleep(3.0)
                        relive("ps")
                    while not is_whole(directory, killed):
                        time.sleep(0.02)
                    away.append(time.monotonic() - begun)
                    time.sleep(0.5)
                rows.append(
                    {
                        "killed": what,
                        "rounds": options.rounds,
                        "answered": clients.answered,
                        "refused": clients.refused,
                        "broken": clients.broken,
                        "longest_ms": round(clients.longest * 1000),
                        "away_ms": round(statistics.median(away) * 1000),
                    }
                )
        finally:
            clients.stop()
            relive("stop", "front")
            if stranger is not None:
                stranger.kill()
                stranger.wait()
            else:
                wait_until_closed(Path(home))
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print(
        f"{'killed':8}{'rounds':>7}{'answered':>10}{'refused':>9}{'broken':>8}{'longest ms':>12}{'away ms':>9}"
    )
    for row in rows:
        print(f"{row['killed']:8}{row['rounds']:>7}{row['answered']:>10}{row['refused']:>9}", end="")
        print(f"{row['broken']:>8}{row['longest_ms']:>12}{row['away_ms']:>9}")


if __name__ == "__main__":
    main()
