"""What the recorder at a capsule's border costs: a client in such a network against the same on the host, in pairs, in one run.

    python benchmarks/egress.py [--seconds 0.5] [--rounds 7] [--json]

The other end is an echo server of the host. Direct and recorded rounds alternate; each number is the median of its rounds.
Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel.namespaces import in_network_of
from relive.proxies.ingress.options import RELAY

HOLDER = """
import sys
from relive.kernel.namespaces import Namespace, unshare
from relive.sandbox.capsule_network import HostNetwork, raise_border
host = HostNetwork.read()
unshare(Namespace.NETWORK)
raise_border(host)
print(flush=True)
sys.stdin.read()
"""
SERVER = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
print(listener.getsockname()[1], flush=True)
def serve(sock):
    with sock:
        kind = sock.recv(1)
        if kind == b"e":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := sock.recv(65536):
                sock.sendall(data)
        elif kind == b"d":
            block = bytes(1 << 20)
            try:
                while True:
                    sock.sendall(block)
            except OSError:
                pass
while True:
    sock, _ = listener.accept()
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
"""


def connect(goal: tuple[str, int]) -> socket.socket:
    """A connection with TCP_NODELAY."""
    sock = socket.create_connection(goal)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def turns(goal: tuple[str, int], seconds: float) -> list[float]:
    """Microseconds of each question of 100 bytes and its answer."""
    with connect(goal) as sock:
        sock.sendall(b"e")
        found, until = [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            sock.sendall(bytes(100))
            sock.recv(200)
            found.append((time.perf_counter() - began) * 1e6)
        return found


def connects(goal: tuple[str, int], seconds: float) -> list[float]:
    """Microseconds of each connect()."""
    found, until = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        with socket.create_connection(goal):
            found.append((time.perf_counter() - began) * 1e6)
    return found


def stream(goal: tuple[str, int], seconds: float) -> list[float]:
    """MiB/s that come from the server."""
    with connect(goal) as sock:
        sock.sendall(b"d")
        buffer, size, began = bytearray(1 << 20), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            size += sock.recv_into(buffer)
        return [size / (time.perf_counter() - began) / (1 << 20)]


def many(goal: tuple[str, int], seconds: float) -> list[float]:
    """Questions a second, of 16 connections that each ask one after the other."""
    counts = [0] * 16

    def ask(number: int) -> None:
        counts[number] = len(turns(goal, seconds))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sum(counts) / (time.perf_counter() - began)]


WORKS: dict[str, tuple[Callable[[tuple[str, int], float], list[float]], str]] = {
    "question and answer": (turns, "µs"),
    "connect": (connects, "µs"),
    "16 connections": (many, "questions/s"),
    "download": (stream, "MiB/s"),
}


def native_options(*, in_python: bool) -> list[str]:
    """Of the recorder: with which it carries in C, as the agent starts it."""
    tools = CriuTools(load_settings().tools_path)
    return [] if in_python else ["--relay", str(tools.directory / RELAY), "--keeper", str(tools.keeper)]


def processor_us(pid: int) -> float:
    """Processor time of a process so far."""
    ran_ns, _, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    threads = sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return max(int(ran_ns), threads) / 1000


def measure(seconds: float, rounds: int, directory: Path, *, in_python: bool) -> dict[str, dict[str, float | str]]:
    """Medians of the rounds' medians, by what was measured."""
    with (
        subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server,
        subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder,
    ):
        assert server.stdout is not None
        assert holder.stdout is not None
        goal = ("127.0.0.1", int(server.stdout.readline()))
        holder.stdout.readline()
        reading, writing = os.pipe()
        recorder = subprocess.Popen(
            [
                *(sys.executable, "-m", "relive.proxies.egress.recorder", "--network-of", str(holder.pid)),
                *("--recording", str(directory / "egress"), "--control", str(directory / "control")),
                *("--ready-fd", str(writing), "--keep-bytes", str(256 << 20)),
                *native_options(in_python=in_python),
            ],
            pass_fds=[writing],
        )
        os.close(writing)
        os.read(reading, 100)
        found: dict[str, dict[str, float | str]] = {}
        try:
            for name, (work, unit) in WORKS.items():
                direct, recorded = [], []
                for _ in range(rounds):
                    direct.append(statistics.median(work(goal, seconds)))
                    recorded.append(
                        statistics.median(in_network_of(holder.pid, lambda work=work: work(goal, seconds)))
                    )
                pair = statistics.median(direct), statistics.median(recorded)
                found[name] = {"direct": pair[0], "recorded": pair[1], "unit": unit}
        finally:
            recorder.terminate()
            recorder.wait()
            server.kill()
            holder.kill()
        return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", action="store_true", help="without the threads in C and the keeper")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(arguments.seconds, arguments.rounds, Path(directory), in_python=arguments.python)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, one in found.items():
        ratio = float(one["recorded"]) / float(one["direct"])
        print(
            f"{name:22} direct {one['direct']:10.1f}  recorded {one['recorded']:10.1f} {one['unit']}  x{ratio:.2f}"
        )


if __name__ == "__main__":
    main()
