"""What the recorder at a capsule's border costs: a client behind it against the same without one, in pairs, in one run.

    python benchmarks/egress.py [--seconds 0.5] [--rounds 7] [--json]

*out*: the other end is an echo server of the host; *in*: it is the service, in the network, and a client of the host asks. Rounds
alternate: direct, with a recorder beside the way, with one in it whose threads in C carry, and with one whose Python does. Each
number is the median of its rounds. *processor*: of the recorder and its keeper, for each question, connection or MiB; *lost*:
packets that came faster than the recorder beside the way could take them. Needs root.
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
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.model.capsule import BorderFacts
from relive.proxies.ingress.options import RELAY
from relive.sandbox.border import prepare_tap, raise_border, raise_tap, remove_border

SERVER = """
import socket, sys, threading
listener = socket.socket(fileno=int(sys.argv[1]))
def serve(sock):
    with sock:
        kind = sock.recv(1)
        if kind == b"e":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := sock.recv(65536):
                sock.sendall(data)
        elif kind == b"m":
            block = bytes(1 << 20)
            while sock.recv(100):
                sock.sendall(block)
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
SIDES = ("beside", "c", "python")
Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What one round has measured. ``amount``: how often, or how much, by which the recorder's processor time is divided."""

    value: float
    amount: float


def connect(destination: Address) -> socket.socket:
    """A connection with TCP_NODELAY."""
    sock = socket.create_connection(destination)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(sock: socket.socket, seconds: float, pause: float = 0.0) -> list[float]:
    """Microseconds of each question of 100 bytes and its answer; ``pause``: from one to the next [s]."""
    sock.sendall(b"e")
    found: list[float] = []
    start = time.perf_counter()
    while (began := time.perf_counter()) < start + seconds:
        sock.sendall(bytes(100))
        sock.recv(200)
        found.append((time.perf_counter() - began) * 1e6)
        if pause:
            time.sleep(max(0.0, start + len(found) * pause - time.perf_counter()))
    return found


def turns(destination: Address, seconds: float) -> Found:
    """Microseconds (p50) of a question and its answer."""
    with connect(destination) as sock:
        found = ask(sock, seconds)
    return Found(statistics.median(found), len(found))


def paced(destination: Address, seconds: float) -> Found:
    """As ``turns``, 1,000 in a second."""
    with connect(destination) as sock:
        found = ask(sock, seconds, 0.001)
    return Found(statistics.median(found), len(found))


def connects(destination: Address, seconds: float) -> Found:
    """Microseconds (p50) of connect()."""
    found, until = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        with socket.create_connection(destination):
            found.append((time.perf_counter() - began) * 1e6)
    return Found(statistics.median(found), len(found))


def megabytes(destination: Address, seconds: float) -> Found:
    """Microseconds (p50) of a question and its answer of 1 MiB."""
    with connect(destination) as sock:
        sock.sendall(b"m")
        buffer, found, until = bytearray(1 << 20), [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            sock.sendall(bytes(100))
            sock.recv_into(buffer, 0, socket.MSG_WAITALL)
            found.append((time.perf_counter() - began) * 1e6)
    return Found(statistics.median(found), len(found))


def stream(destination: Address, seconds: float) -> Found:
    """MiB/s that come from the server."""
    with connect(destination) as sock:
        sock.sendall(b"d")
        buffer, size, began = bytearray(1 << 20), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            size += sock.recv_into(buffer)
        return Found(size / (time.perf_counter() - began) / (1 << 20), size / (1 << 20))


def many(destination: Address, seconds: float) -> Found:
    """Questions a second, of 16 connections that each ask one after the other."""
    counts = [0.0] * 16

    def one(number: int) -> None:
        counts[number] = turns(destination, seconds).amount

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Found(sum(counts) / (time.perf_counter() - began), sum(counts))


WORKS: dict[str, tuple[Callable[[Address, float], Found], str]] = {
    "question and answer": (turns, "µs"),
    "the same, 1,000/s": (paced, "µs"),
    "connect": (connects, "µs"),
    "16 connections": (many, "questions/s"),
    "answer of 1 MiB": (megabytes, "µs"),
    "download": (stream, "MiB/s"),
}


def options_of(side: str, border: BorderFacts) -> list[str]:
    """Of the recorder, as the agent starts it; with ``python`` it has nothing of C."""
    tools = CriuTools(load_settings().tools_path)
    relay = ["--relay", str(tools.directory / RELAY)]
    if side == "beside":
        return relay
    return [
        "--border",
        str(border.number),
        *([] if side == "python" else [*relay, "--keeper", str(tools.keeper)]),
    ]


def processor_us(pid: int) -> float:
    """Processor time so far of the recorder and the keeper, its child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    files = [one for each in (pid, *children) for one in Path(f"/proc/{each}/task").glob("*/schedstat")]
    return sum(int(one.read_text().split()[0]) for one in files) / 1000


def lost_packets(control: Path) -> int:
    """Of a recorder beside the way, so far."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(control))
        sock.sendall(b'{"op":"status","id":1}\n')
        return int(json.loads(sock.makefile().readline())["packets_lost"])


def serving(listener: socket.socket) -> subprocess.Popen[bytes]:
    """A server in a process of its own."""
    with listener:
        return subprocess.Popen(
            [sys.executable, "-c", SERVER, str(listener.fileno())], pass_fds=[listener.fileno()]
        )


def started(border: BorderFacts, holder: int, directory: Path, side: str) -> subprocess.Popen[bytes]:
    """A recorder that takes connections."""
    reading, writing = os.pipe()
    module = "beside" if side == "beside" else "recorder"
    recorder = subprocess.Popen(
        [
            *(sys.executable, "-m", f"relive.proxies.egress.{module}", "--capsule", str(holder)),
            *("--group", border.group),
            *("--recording", str(directory / "egress"), "--control", str(directory / "control.sock")),
            *("--ready-fd", str(writing), "--keep-bytes", str(256 << 20)),
            *options_of(side, border),
        ],
        pass_fds=[writing],
    )
    os.close(writing)
    os.read(reading, 100)
    os.close(reading)
    return recorder


def in_child(action: Callable[[], Found], group: Path | None) -> Found:
    """Do it in a process of its own, which is in a control group."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if group is not None:
                (group / "cgroup.procs").write_text("0")
            found = action()
            os.write(writing, json.dumps([found.value, found.amount]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return Found(*json.loads(told))


class Border:
    """A border with a recorder, and a server behind it."""

    def __init__(self, directory: Path, side: str) -> None:
        raised, writing = os.pipe()
        self.holder = os.fork()
        if self.holder == 0:
            facts = raise_tap(prepare_tap()) if side == "beside" else raise_border()
            os.write(writing, facts.model_dump_json().encode())
            while True:
                signal.pause()
        os.close(writing)
        self.facts = BorderFacts.model_validate_json(os.read(raised, 4096))
        os.close(raised)
        self.group = Path(self.facts.group)
        inside = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.service: Address = inside.getsockname()
        self.server = serving(inside)
        (self.group / "cgroup.procs").write_text(str(self.server.pid))
        directory.mkdir()
        self.recorder = started(self.facts, self.holder, directory, side)
        self.control = directory / "control.sock" if side == "beside" else None

    def measured(self, action: Callable[[], Found]) -> tuple[float, float]:
        """What it gives, and the recorder's processor time for each [us]."""
        before = processor_us(self.recorder.pid)
        done = action()
        return done.value, (processor_us(self.recorder.pid) - before) / done.amount

    def asking(self, work: Callable[[Address, float], Found], destination: Address, seconds: float) -> Found:
        """The service asks somebody outside."""
        return in_child(partial(work, destination, seconds), self.group)

    def close(self) -> None:
        """End it."""
        self.recorder.terminate()
        self.recorder.wait()
        self.server.kill()
        self.server.wait()
        os.kill(self.holder, signal.SIGKILL)
        os.waitpid(self.holder, 0)
        remove_border(self.facts)


def measure(seconds: float, rounds: int, directory: Path) -> list[dict[str, float | str]]:
    """Medians of the rounds, by what was measured: first what the service asks, then what it is asked."""
    outside = socket.create_server(("127.0.0.1", 0), backlog=512)
    destination: Address = outside.getsockname()
    server = serving(outside)
    borders = {name: Border(directory / name, name) for name in SIDES}
    found: list[dict[str, float | str]] = []
    try:
        for way in ("out", "in"):
            for name, (work, unit) in WORKS.items():
                direct = []
                by_border: dict[str, list[tuple[float, float]]] = {each: [] for each in borders}
                for _ in range(rounds):
                    direct.append(in_child(partial(work, destination, seconds), None).value)
                    for each, border in borders.items():
                        if way == "out":
                            action = partial(border.asking, work, destination, seconds)
                        else:
                            action = partial(in_child, partial(work, border.service, seconds), None)
                        by_border[each].append(border.measured(action))
                told: dict[str, float | str] = {"way": way, "name": name, "unit": unit}
                control = borders["beside"].control
                assert control is not None
                told["lost"] = lost_packets(control)
                told["direct"] = statistics.median(direct)
                for each, values in by_border.items():
                    told[each], told[f"cpu_us_{each}"] = map(statistics.median, zip(*values, strict=True))
                found.append(told)
    finally:
        for border in borders.values():
            border.close()
        server.kill()
        server.wait()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(arguments.seconds, arguments.rounds, Path(directory))
    if arguments.json:
        print(json.dumps(found))
        return
    print(
        f"{'':24} {'':11} {'direct':>10} {'beside':>10} {'in C':>10} {'Python':>10}   "
        "processor us each: beside, in C, Python; packets lost so far"
    )
    for one in found:
        values = "".join(f" {float(one[name]):10.1f}" for name in ("direct", *SIDES))
        processor = "".join(f" {float(one[f'cpu_us_{name}']):10.1f}" for name in SIDES)
        print(f"{one['way']:3} {one['name']:20} {one['unit']:11} {values}  {processor} {one['lost']:8}")


if __name__ == "__main__":
    main()
